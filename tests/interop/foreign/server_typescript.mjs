// The interop fixture served by the official TypeScript SDK; the same tools as server_python.py.
// Arguments: `stdio`, or `http PORT`; the journal file comes by INTEROP_JOURNAL.
import { appendFileSync } from 'node:fs';
import { randomUUID } from 'node:crypto';
import { createServer } from 'node:http';
import { createMcpHandler, isLegacyRequest, McpServer } from '@modelcontextprotocol/server';
import { serveStdio } from '@modelcontextprotocol/server/stdio';
import { NodeStreamableHTTPServerTransport, toNodeHandler, toWebRequest } from '@modelcontextprotocol/node';
import { z } from 'zod';

const text = value => ({ content: [{ type: 'text', text: String(value) }] });
const pause = (ms, signal) =>
    new Promise((resolve, reject) => {
        const timer = setTimeout(resolve, ms);
        signal?.addEventListener('abort', () => { clearTimeout(timer); reject(new Error('aborted')); }, { once: true });
    });

function journal(event, key) {
    if (process.env.INTEROP_JOURNAL) appendFileSync(process.env.INTEROP_JOURNAL, `${event} ${key} ${Date.now() / 1000}\n`);
}

function build() {
    const server = new McpServer(
        { name: 'interop-typescript', version: '1.0' },
        { capabilities: { logging: {} }, instructions: 'a fixture' }
    );
    const tool = (name, description, fields, run, output) =>
        server.registerTool(name, { description, inputSchema: z.object(fields), ...(output && { outputSchema: z.object(output) }) }, run);
    tool('echo', 'Give the text back.', { text: z.string() }, async a => text(a.text));
    tool('add', 'Add two integers.', { a: z.int(), b: z.int() },
        async a => ({ ...text(a.a + a.b), structuredContent: { result: a.a + a.b } }), { result: z.int() });
    tool('weather', 'The weather of a city, structured.', { city: z.string() },
        async a => ({ ...text(`21.5 in ${a.city}`), structuredContent: { city: a.city, celsius: 21.5 } }),
        { city: z.string(), celsius: z.number() });
    tool('fail', 'Fail with the given reason.', { reason: z.string() }, async a => { throw new Error(a.reason); });
    tool('count', 'Report progress for each step.', { steps: z.int() }, async (a, ctx) => {
        const token = ctx.mcpReq._meta?.progressToken;
        for (let done = 1; done <= a.steps; done++) {
            if (token !== undefined) {
                const params = { progressToken: token, progress: done, total: a.steps, message: `step ${done}` };
                await ctx.mcpReq.notify({ method: 'notifications/progress', params });
            }
            await pause(10);
        }
        return text(`counted to ${a.steps}`);
    });
    tool('chatter', 'Log one message of each of three levels.', {}, async (_, ctx) => {
        await ctx.mcpReq.log('debug', 'a debug line');
        await ctx.mcpReq.log('info', 'an info line');
        await ctx.mcpReq.log('error', 'an error line');
        return text('logged');
    });
    tool('slow', 'Sleep; write to the journal how it ended.', { seconds: z.number(), key: z.string() }, async (a, ctx) => {
        journal('started', a.key);
        try {
            await pause(a.seconds * 1000, ctx.mcpReq.signal);
        } catch (error) {
            journal('cancelled', a.key);
            throw error;
        }
        journal('finished', a.key);
        return text('slept');
    });
    tool('large', 'Text of the given length.', { size: z.int() }, async a => text('x'.repeat(a.size)));
    tool('pid', 'The process id of the server.', {}, async () => text(process.pid));
    return server;
}

async function readBody(req) {
    const chunks = [];
    for await (const chunk of req) chunks.push(chunk);
    const whole = Buffer.concat(chunks).toString();
    return whole ? JSON.parse(whole) : undefined;
}

// 2025 sessions as users wire them by hand; everything else goes to the stateless handler.
function serveHttp(port) {
    const modern = toNodeHandler(createMcpHandler(build, { legacy: 'reject' }));
    const sessions = new Map();
    const legacy = async (req, res, body) => {
        let transport = sessions.get(req.headers['mcp-session-id']);
        if (!transport) {
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
        const body = req.method === 'POST' ? await readBody(req) : undefined;
        const isLegacy = await isLegacyRequest(await toWebRequest(req, body), body);
        await (isLegacy ? legacy : modern)(req, res, body);
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
