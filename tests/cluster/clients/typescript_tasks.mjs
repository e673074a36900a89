// TypeScript clients start tasks and fetch their results, each time with a new one: `typescript_tasks.mjs ERA URL`; see tasks.py.
// In 2025-11-25 it is version 1 of the official SDK, in 2026-07-28 version 2 with the official package of the extension.
import { createInterface } from 'node:readline';

const [era, url] = process.argv.slice(2, 4);
const CALL_MS = 15_000;
const accept = { action: 'accept', content: { value: 'yes' } };
const capabilities = { elicitation: { form: {} } };
const clientInfo = { name: 'tasks', version: '1' };
const pause = ms => new Promise(resolve => setTimeout(resolve, ms));

class Failed extends Error {
    constructor(text, code = 0) { super(text); this.code = code; this.told = true; }
}

// The text of a result; throws if it is that of an error.
function textOf(result) {
    if (result.isError) throw new Failed(result.content[0].text);
    return result.content[0].text;
}

// Connect a client, use it, and close it.
async function using(client, transport, use) {
    try {
        await client.connect(transport);
        return await use(client);
    } finally { await client.close().catch(() => {}); }
}

async function version1() {
    const { Client } = await import('@modelcontextprotocol/sdk/client/index.js');
    const { StreamableHTTPClientTransport } = await import('@modelcontextprotocol/sdk/client/streamableHttp.js');
    const { CallToolResultSchema, CreateTaskResultSchema, ElicitRequestSchema, McpError } = await import('@modelcontextprotocol/sdk/types.js');
    const options = { timeout: CALL_MS };
    const connected = use => {
        const client = new Client(clientInfo, { capabilities });
        client.setRequestHandler(ElicitRequestSchema, async () => accept);
        return using(client, new StreamableHTTPClientTransport(new URL(url)), use);
    };
    const start = (name, args, ttl) => connected(async client => {
        const request = { method: 'tools/call', params: { name, arguments: args } };
        return (await client.request(request, CreateTaskResultSchema, { ...options, task: { ttl } })).task.taskId;
    });
    const fetch = id => connected(async client => {
        const tasks = client.experimental.tasks;
        for (let task; (task = await tasks.getTask(id, options)).status === 'working';) await pause(task.pollInterval);
        return textOf(await tasks.getTaskResult(id, CallToolResultSchema, options));
    });
    return { start, fetch, told: error => error instanceof McpError };
}

async function version2() {
    const { Client, StreamableHTTPClientTransport } = await import('@modelcontextprotocol/client');
    const { createTaskSessionFromClient, resultFromTaskOutcome, JsonRpcResponseError, TaskFailedError } =
        await import('@modelcontextprotocol/ext-tasks/client');
    let number = 0;
    const connected = use => {
        const client = new Client(clientInfo, { capabilities, versionNegotiation: { mode: { pin: '2026-07-28' } } });
        const transport = new StreamableHTTPClientTransport(new URL(url));
        return using(client, transport, async () => {
            // Requests of the extension go past the client, which refuses their results: the package asks for that.
            const answers = new Map(), { onmessage } = transport;
            transport.onmessage = (message, extra) => answers.get(message.id)?.(message) ?? onmessage(message, extra);
            const rawDispatch = async request => {
                const id = `task-${++number}`;
                const answer = new Promise((resolve, reject) => {
                    answers.set(id, message => resolve(message) ?? true);
                    setTimeout(reject, CALL_MS, new Error('no end'));
                });
                const [message] = await Promise.all([answer, transport.send({ jsonrpc: '2.0', id, ...request })]);
                return message.error ? { kind: 'error', error: message.error } : { kind: 'result', result: message.result };
            };
            const v2RequestFraming = { protocolVersion: '2026-07-28', clientInfo, clientCapabilities: capabilities };
            return use(createTaskSessionFromClient(client, { endpointId: url, rawDispatch, v2RequestFraming, onInputRequest: async () => accept }));
        });
    };
    const start = (name, args) => connected(async session => {
        const execution = await session.callTool(name, args);
        return execution.kind === 'task' ? execution.serializeReference() : null;
    });
    const fetch = reference => connected(async session => {
        const execution = await session.resumeTask(reference);
        return textOf(resultFromTaskOutcome((await execution.settle()).outcome));
    });
    // A failure without a code is one of the client itself.
    const told = error => error instanceof JsonRpcResponseError || (error instanceof TaskFailedError && error.code !== undefined);
    return { start, fetch, told };
}

process.on('unhandledRejection', () => {});
const { told, ...requests } = await (era === '2026' ? version2 : version1)();
requests.ready = async () => null;
createInterface({ input: process.stdin }).on('line', async line => {
    const { id, name, values } = JSON.parse(line);
    let answer;
    try { answer = { value: await requests[name](...values) }; } catch (error) {
        answer = { error: `${error?.message}`, code: error?.told || told(error) ? error.code ?? 0 : null };
    }
    console.log(JSON.stringify({ id, ...answer }));
}).on('close', () => process.exit(0));
