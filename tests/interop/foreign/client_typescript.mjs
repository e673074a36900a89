// The official TypeScript SDK's client walks the plan; the same command line and report as the Python clients.
import { parseArgs } from 'node:util';
import { readFileSync } from 'node:fs';
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio';

const STEP_LIMIT = 30_000;
const CANCEL_AFTER = 700;
const { values: given, positionals } = parseArgs({
    allowPositionals: true,
    options: {
        transport: { type: 'string' },
        era: { type: 'string' },
        revision: { type: 'string' },
        plan: { type: 'string' },
        hold: { type: 'boolean', default: false }
    }
});
const target = positionals[0];
const plan = JSON.parse(given.plan);
const steps = {};
const logs = [];
const pause = ms => new Promise(resolve => setTimeout(resolve, ms));

function describe(error) {
    const out = { type: error?.constructor?.name ?? typeof error, message: String(error?.message ?? error).slice(0, 500) };
    if (error?.code !== undefined) out.code = error.code;
    if (error?.data !== undefined) out.data = JSON.stringify(error.data)?.slice(0, 300);
    return out;
}

async function step(name, work) {
    const begin = performance.now();
    const entry = {};
    let timer;
    const limit = new Promise((_, reject) => {
        timer = setTimeout(() => reject(Object.assign(new Error(`no end within ${STEP_LIMIT} ms`), { hang: true })), STEP_LIMIT);
    });
    try {
        entry.value = (await Promise.race([work(), limit])) ?? null;
    } catch (error) {
        entry.error = error.hang ? { type: 'Hang', message: error.message } : describe(error);
    }
    clearTimeout(timer);
    entry.seconds = Math.round(performance.now() - begin) / 1000;
    entry.ended_at = Date.now() / 1000;
    steps[name] = entry;
    return 'value' in entry;
}

function shape(result) {
    const text = result.content.filter(block => block.type === 'text').map(block => block.text).join('\n');
    return {
        text: text.slice(0, 300),
        length: text.length,
        types: result.content.map(block => block.type),
        structured: result.structuredContent ?? null,
        is_error: result.isError ?? false
    };
}

const mode = given.era === '2025' ? 'legacy' : { pin: given.revision };
const client = new Client({ name: 'interop-typescript', version: '1.0' }, { versionNegotiation: { mode } });
client.setNotificationHandler('notifications/message', message => {
    logs.push({ level: message.params.level, data: message.params.data, logger: message.params.logger ?? null });
});

async function connect() {
    let transport;
    if (given.transport === 'stdio') {
        const [command, ...args] = JSON.parse(target);
        transport = new StdioClientTransport({ command, args, stderr: 'inherit' });
    } else {
        transport = new StreamableHTTPClientTransport(new URL(target));
    }
    await client.connect(transport);
    const info = client.getServerVersion();
    return {
        revision: client.getNegotiatedProtocolVersion() ?? null,
        name: info?.name ?? null,
        version: info?.version ?? null,
        instructions: client.getInstructions() ?? null,
        capabilities: client.getServerCapabilities() ?? null
    };
}

async function call([name, args], options = {}) {
    return shape(await client.callTool({ name, arguments: args, ...options.params }, options.request));
}

const special = {
    async progress(item) {
        const seen = [];
        const onprogress = p => seen.push([p.progress, p.total ?? null, p.message ?? null]);
        const answer = await call(item, { request: { onprogress } });
        await pause(100);
        return { ...answer, progress: seen };
    },
    async logging(item) {
        let level_error = null;
        const params = {};
        if (given.era === '2025') {
            await client.setLoggingLevel('debug').catch(error => { level_error = describe(error); });
        } else {
            params._meta = { 'io.modelcontextprotocol/logLevel': 'debug' };
        }
        logs.length = 0;
        const answer = await call(item, { params });
        await pause(200);
        return { ...answer, logs: [...logs], level_error };
    },
    async cancel(item) {
        const abort = new AbortController();
        const pending = call(item, { request: { signal: abort.signal } }).catch(error => describe(error));
        await pause(CANCEL_AFTER);
        abort.abort('the user changed his mind');
        return { ended: await pending };
    },
    async limit(item) {
        return call(item, { request: { timeout: CANCEL_AFTER } });
    },
    async concurrent(items) {
        return Promise.all(items.map(item => call(item).catch(error => describe(error))));
    }
};

if (await step('connect', connect)) {
    if (given.hold) {
        if (await step('pid', () => call(['pid', {}]))) {
            console.log(JSON.stringify({ server_pid: Number(steps.pid.value.text) }));
            await step('held', () => call(plan.cancel));
        }
    } else {
        await step('list_tools', async () => (await client.listTools()).tools);
        for (const [name, item] of Object.entries(plan)) {
            await step(name, () => (special[name] ?? call)(item));
        }
        await step('afterwards', async () => (await client.listTools(undefined, { cacheMode: 'bypass' })).tools);
    }
}
await step('close', () => client.close());
const version = JSON.parse(readFileSync(new URL('../node_modules/@modelcontextprotocol/client/package.json', import.meta.url))).version;
console.log(JSON.stringify({ client: `typescript ${version}`, transport: given.transport, era: given.era, steps }));
process.exitCode = 0;
