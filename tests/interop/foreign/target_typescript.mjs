// The server of the hostile cases, made with the official TypeScript SDK: the tools, prompts and resources of `tests/hostile/target.py`.
// Arguments: `stdio`, or `http PORT`. Options of the SDK have their defaults.
import { randomUUID } from 'node:crypto';
import { createServer } from 'node:http';
import {
    completable, createMcpHandler, inputRequired, inputResponse, isInitializeRequest, isLegacyRequest, McpServer, ResourceTemplate
} from '@modelcontextprotocol/server';
import { serveStdio } from '@modelcontextprotocol/server/stdio';
import { NodeStreamableHTTPServerTransport, toNodeHandler, toWebRequest } from '@modelcontextprotocol/node';
import { z } from 'zod';

const text = value => ({ content: [{ type: 'text', text: String(value) }] });
const FORM = { type: 'object', properties: { value: { type: 'integer' } }, required: ['value'] };

function build() {
    const server = new McpServer({ name: 'target', version: '1' }, { capabilities: { logging: {} } });
    const tool = (name, fields, run, output) =>
        server.registerTool(name, { inputSchema: z.object(fields), ...(output && { outputSchema: z.object(output) }) }, run);
    tool('add', { a: z.int(), b: z.int() },
        async a => ({ ...text(a.a + a.b), structuredContent: { result: a.a + a.b } }), { result: z.int() });
    tool('echo', { text: z.string() }, async a => text(a.text));
    tool('fail', {}, async () => ({ ...text('it failed'), isError: true }));
    tool('crash', {}, async () => { throw new Error('the password is 1234'); });
    tool('wait', {}, async (_, ctx) => new Promise((_, reject) =>
        ctx.mcpReq.signal.addEventListener('abort', () => reject(new Error('aborted')), { once: true })));
    tool('count', { upto: z.int() }, async (a, ctx) => {
        const token = ctx.mcpReq._meta?.progressToken;
        for (let done = 0; done < a.upto && token !== undefined; done++) {
            await ctx.mcpReq.notify({ method: 'notifications/progress', params: { progressToken: token, progress: done, total: a.upto } });
        }
        return text(a.upto);
    });
    tool('ask', {}, async (_, ctx) => {
        const answer = inputResponse(ctx.mcpReq.inputResponses, 'row');
        if (answer.kind === 'missing') {
            return inputRequired({ inputRequests: { row: inputRequired.elicit({ message: 'Which row?', requestedSchema: FORM }) } });
        }
        if (answer.action !== 'accept') throw new Error('not answered');
        return text(`row ${answer.content.value}`);
    });
    server.registerPrompt('greet',
        { argsSchema: z.object({ who: completable(z.string(), value => ['Ada', 'Alan', 'Grace'].filter(name => name.startsWith(value))) }) },
        async a => ({ messages: [{ role: 'user', content: { type: 'text', text: `Greet ${a.who}` } }] }));
    server.registerResource('text', 'test://text', {}, async uri => ({ contents: [{ uri: uri.href, text: 'some text' }] }));
    server.registerResource('item', new ResourceTemplate('test://item/{number}', { list: undefined }), {},
        async (uri, { number }) => ({ contents: [{ uri: uri.href, text: `item ${number}` }] }));
    return server;
}

// Sessions of the handshake era as the SDK's examples wire them; everything else goes to the stateless handler.
function serveHttp(port) {
    const modern = toNodeHandler(createMcpHandler(build, { legacy: 'reject' }));
    const sessions = new Map();
    const refuse = (res, status, code, message) => {
        res.writeHead(status, { 'content-type': 'application/json' });
        res.end(JSON.stringify({ jsonrpc: '2.0', error: { code, message }, id: null }));
    };
    const legacy = async (req, res, body) => {
        const id = req.headers['mcp-session-id'];
        let transport = sessions.get(id);
        if (!transport) {
            if (id) return refuse(res, 404, -32001, 'Session not found');
            if (!isInitializeRequest(body)) return refuse(res, 400, -32000, 'Bad Request: No valid session ID provided');
            transport = new NodeStreamableHTTPServerTransport({
                sessionIdGenerator: randomUUID,
                onsessioninitialized: id => { sessions.set(id, transport); },
                onsessionclosed: id => { sessions.delete(id); }
            });
            await build().connect(transport);
        }
        await transport.handleRequest(req, res, body);
    };
    const listener = async (req, res) => {
        const chunks = [];
        for await (const chunk of req) chunks.push(chunk);
        let body;
        try {
            const whole = Buffer.concat(chunks).toString();
            body = whole ? JSON.parse(whole) : undefined;
        } catch {
            return refuse(res, 400, -32700, 'Parse error');
        }
        await (await isLegacyRequest(await toWebRequest(req, body), body) ? legacy : modern)(req, res, body);
    };
    createServer((req, res) => {
        listener(req, res).catch(error => {
            console.error(error);
            if (!res.headersSent) res.writeHead(500).end();
        });
    }).listen(port, '127.0.0.1');
}

if (process.argv[2] === 'stdio') serveStdio(build);
else serveHttp(Number(process.argv[3]));
