// The MCP client of the AI SDK lists and calls tools, without a model; the command line and report of every client.
import { parseArgs } from 'node:util';
import { createMCPClient } from '@ai-sdk/mcp';
import { Experimental_StdioMCPTransport as StdioTransport } from '@ai-sdk/mcp/mcp-stdio';

const { values: given, positionals } = parseArgs({
    allowPositionals: true,
    options: {
        transport: { type: 'string' }, era: { type: 'string' }, revision: { type: 'string' },
        plan: { type: 'string' }, answers: { type: 'string' }
    }
});
const steps = {};

async function step(name, work) {
    const begin = performance.now();
    const entry = {};
    try {
        entry.value = (await work()) ?? null;
    } catch (error) {
        entry.error = { type: error?.constructor?.name ?? typeof error, message: String(error?.message ?? error).slice(0, 500) };
    }
    steps[name] = { ...entry, seconds: Math.round(performance.now() - begin) / 1000, ended_at: Date.now() / 1000 };
}

let client;
let tools;

async function call(name, args) {
    try {
        const result = await tools[name].execute(args, { toolCallId: '1', messages: [] });
        const text = (result.content ?? []).filter(block => block.type === 'text').map(block => block.text).join('\n');
        return { text: text || JSON.stringify(result), is_error: result.isError ?? false };
    } catch (error) {
        return { text: String(error?.message ?? error), is_error: true };
    }
}

const verbs = {
    items: async () => ({ items: Object.keys(tools).map(name => ({ name, inputSchema: { type: 'object' } })), pages: null }),
    call,
    concurrent: calls => Promise.all(calls.map(item => call(...item)))
};

await step('connect', async () => {
    const [command, ...args] = given.transport === 'stdio' ? JSON.parse(positionals[0]) : [];
    const transport = command ? new StdioTransport({ command, args }) : { type: 'http', url: positionals[0] };
    client = await createMCPClient({ transport });
    tools = await client.tools();
    return { skipped: 'the framework does not tell whom it met' };
});
for (const [name, [verb, ...args]] of Object.entries(JSON.parse(given.plan))) await step(name, () => verbs[verb](...args));
await step('close', () => client.close());
const report = JSON.stringify({ client: 'ai-sdk', transport: given.transport, era: given.era, steps });
process.stdout.write(report, () => process.exit(0));
