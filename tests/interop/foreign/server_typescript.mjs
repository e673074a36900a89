// The interop fixture served by the official TypeScript SDK; the same names as in the other fixtures.
// Arguments: `stdio`, or `http PORT`; the journal file comes by INTEROP_JOURNAL.
import { appendFileSync } from 'node:fs';
import { randomUUID } from 'node:crypto';
import { createServer } from 'node:http';
import {
    completable, createMcpHandler, inputRequired, inputResponse, isLegacyRequest, McpServer, ResourceTemplate
} from '@modelcontextprotocol/server';
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

const NOTE = 'a note: hé ☃';
const ITEMS = { fruit: ['apple', 'apricot', 'pear'], fish: ['perch', 'pike'] };
const NAMES = ['Ada', 'Alan', 'Grace'];
const startingWith = (values, text) => values.filter(value => value.startsWith(text ?? ''));

// What changed goes to the streams of the stateless era, if there are any (HTTP), and to the instance's own client.
let bus = null;

function build({ era } = { era: 'legacy' }) {
    const server = new McpServer(
        { name: 'interop-typescript', version: '1.0' },
        { capabilities: { logging: {}, resources: { subscribe: true } }, instructions: 'a fixture' }
    );
    addTools(server);
    addQuestions(server);
    addChanges(server, era);
    addResources(server);
    addPrompts(server);
    return server;
}

const toolsOf = server => (name, description, fields, run, output) =>
    server.registerTool(name, { description, inputSchema: z.object(fields), ...(output && { outputSchema: z.object(output) }) }, run);

function addTools(server) {
    const tool = toolsOf(server);
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
        await pause(200);
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
}

const DAY = { type: 'object', properties: { day: { type: 'string' }, seats: { type: 'integer', default: 1 } }, required: ['day'] };
const ONE = { type: 'object', properties: { value: { type: 'string' } }, required: ['value'] };
const elicit = (message, requestedSchema) => inputRequired.elicit({ message, requestedSchema });
const sample = (about, maxTokens) =>
    inputRequired.createMessage({ maxTokens, messages: [{ role: 'user', content: { type: 'text', text: about } }] });

// Calls `done` with the answers once they are there, and asks until then.
const asking = (requests, done) => async (args, ctx) => {
    const questions = requests(args);
    const answers = Object.fromEntries(Object.keys(questions).map(key => [key, inputResponse(ctx.mcpReq.inputResponses, key)]));
    if (Object.values(answers).some(answer => answer.kind === 'missing')) return inputRequired({ inputRequests: questions });
    return done(answers, args);
};

function addQuestions(server) {
    const tool = toolsOf(server);
    tool('book', 'Ask the user for a day and a number of seats.', { city: z.string() },
        asking(() => ({ day: elicit('Which day?', DAY) }),
            ({ day }, { city }) => text(`${day.content.seats} seats to ${city} on ${day.content.day}`)));
    tool('refuse', 'Ask what the user does not want to answer.', {},
        asking(() => ({ secret: elicit('Your secret?', ONE) }), ({ secret }) => text(`not told: ${secret.action}`)));
    tool('sign', 'Ask the user to open a page.', {},
        asking(() => ({ page: inputRequired.elicitUrl({ message: 'Please sign', url: 'https://example.com/sign' }) }),
            ({ page }) => text(page.action === 'accept' ? 'signed' : 'not signed')));
    tool('think', 'Ask the model of the client.', { about: z.string() },
        asking(({ about }) => ({ thought: sample(about, 50) }),
            ({ thought }) => text(`${thought.result.model}: ${thought.result.content.text}`)));
    tool('where', 'Ask the client for its folders.', {},
        asking(() => ({ roots: inputRequired.listRoots() }), ({ roots }) => text(roots.roots.map(root => root.uri).join(' '))));
    tool('together', 'Three questions at once.', {},
        asking(() => ({ name: elicit('Your name?', ONE), thought: sample('greeting', 20), roots: inputRequired.listRoots() }),
            ({ name, thought, roots }) =>
                text(`${name.content.value}, ${thought.result.content.text}, ${roots.roots.length} roots`)));
    // Each round brings its own answers only: what came before is in the state.
    tool('tour', 'Ask twice, the second time with what the first answer said.', {}, async (_, ctx) => {
        const answer = inputResponse(ctx.mcpReq.inputResponses, 'value');
        const known = ctx.mcpReq.requestState();
        if (answer.kind === 'missing') return inputRequired({ inputRequests: { value: elicit('Your name?', ONE) } });
        const said = answer.content.value;
        if (!known) {
            return inputRequired({ inputRequests: { value: elicit(`Your colour, ${said}?`, ONE) }, requestState: said });
        }
        journal('toured', 'once');
        return text(`${known} likes ${said}`);
    });
}

function addChanges(server, era) {
    const tool = toolsOf(server);
    const watched = new Set();
    server.server.setRequestHandler('resources/subscribe', async ({ params }) => { watched.add(params.uri); return {}; });
    server.server.setRequestHandler('resources/unsubscribe', async ({ params }) => { watched.delete(params.uri); return {}; });
    tool('touch', 'Tell everybody who watches a resource that it changed.', { uri: z.string() }, async a => {
        bus?.resourceUpdated(a.uri);
        if (watched.has(a.uri) || (era === 'modern' && !bus)) await server.server.sendResourceUpdated({ uri: a.uri });
        return text('touched');
    });
    const tells = {
        tools: [() => bus?.toolsChanged(), () => server.sendToolListChanged()],
        prompts: [() => bus?.promptsChanged(), () => server.sendPromptListChanged()],
        resources: [() => bus?.resourcesChanged(), () => server.sendResourceListChanged()]
    };
    tool('change', 'Tell everybody that a list changed.', { kind: z.string() }, async a => {
        for (const tell of tells[a.kind]) await tell();
        return text('changed');
    });
}

function addResources(server) {
    const one = (uri, contents) => ({ contents: [{ uri: uri.href, ...contents }] });
    server.registerResource('note', 'interop://note', { mimeType: 'text/plain' },
        async uri => one(uri, { mimeType: 'text/plain', text: NOTE }));
    const bytes = Buffer.from(Array.from({ length: 256 }, (_, n) => n)).toString('base64');
    server.registerResource('dot', 'interop://dot', { mimeType: 'application/octet-stream' },
        async uri => one(uri, { mimeType: 'application/octet-stream', blob: bytes }));
    server.registerResource('watched', 'interop://watched', {}, async uri => one(uri, { text: 'watched' }));
    server.registerResource('private', 'interop://private', {}, async (uri, ctx) => {
        const name = inputResponse(ctx.mcpReq.inputResponses, 'name');
        if (name.kind === 'missing') return inputRequired({ inputRequests: { name: elicit('Your name?', ONE) } });
        return one(uri, { text: `for ${name.content.value}` });
    });
    const complete = {
        kind: value => startingWith(Object.keys(ITEMS), value),
        name: (value, context) => startingWith(ITEMS[context?.arguments?.kind] ?? [], value)
    };
    server.registerResource('item', new ResourceTemplate('interop://items/{kind}/{name}', { list: undefined, complete }),
        { mimeType: 'application/json' },
        async (uri, { kind, name }) => one(uri, { mimeType: 'application/json', text: JSON.stringify({ kind, name }) }));
}

function addPrompts(server) {
    const says = (role, content) => ({ role, content: typeof content === 'string' ? { type: 'text', text: content } : content });
    const argsSchema = z.object({
        name: completable(z.string(), value => startingWith(NAMES, value)),
        mood: completable(z.string(), value => Array.from({ length: 150 }, (_, n) => `${value}${n}`)).optional()
    });
    server.registerPrompt('greet', { description: 'Greet somebody.', argsSchema },
        async a => ({ messages: [says('user', `Greet ${a.name}, ${a.mood ?? 'calm'}.`)] }));
    server.registerPrompt('brief', { description: 'Messages of several kinds.' }, async () => ({
        messages: [
            says('assistant', 'I listen.'),
            says('user', { type: 'image', data: 'aGk=', mimeType: 'image/png' }),
            says('user', { type: 'resource', resource: { uri: 'interop://note', mimeType: 'text/plain', text: NOTE } })
        ]
    }));
    server.registerPrompt('plain', { description: 'No arguments.' }, async () => ({ messages: [says('user', 'Plain.')] }));
    server.registerPrompt('interview', { description: 'Ask first.' }, async ctx => {
        const name = inputResponse(ctx.mcpReq.inputResponses, 'name');
        if (name.kind === 'missing') return inputRequired({ inputRequests: { name: elicit('Your name?', ONE) } });
        return { messages: [says('user', `Interview ${name.content.value}.`)] };
    });
}

async function readBody(req) {
    const chunks = [];
    for await (const chunk of req) chunks.push(chunk);
    const whole = Buffer.concat(chunks).toString();
    return whole ? JSON.parse(whole) : undefined;
}

// 2025 sessions as users wire them by hand; everything else goes to the stateless handler.
function serveHttp(port) {
    const handler = createMcpHandler(build, { legacy: 'reject' });
    const modern = toNodeHandler(handler);
    bus = handler.notify;
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
