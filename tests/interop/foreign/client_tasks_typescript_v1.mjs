// The official TypeScript SDK's client, version 1, uses tasks of 2025-11-25: `client_tasks_typescript_v1.mjs URL | COMMAND…`; prints JSON.
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { CallToolResultSchema, ElicitRequestSchema } from '@modelcontextprotocol/sdk/types.js';

const [target, ...rest] = process.argv.slice(2);
const client = new Client({ name: 'tasks', version: '1' }, { capabilities: { elicitation: { form: {} } } });
client.setRequestHandler(ElicitRequestSchema, async ({ params }) => {
    const fields = Object.keys(params.requestedSchema.properties);
    return { action: 'accept', content: Object.fromEntries(fields.map(field => [field, 'Ada'])) };
});
const transport = target.startsWith('http')
    ? new StreamableHTTPClientTransport(new URL(target))
    : new StdioClientTransport({ command: target, args: rest, stderr: 'ignore' });
await client.connect(transport);
const tasks = client.experimental.tasks;
const stream = (name, args) => tasks.callToolStream({ name, arguments: args }, CallToolResultSchema, { task: { ttl: 60_000 } });

// Call a tool as a task, and follow it to its end.
async function outcome(name, args = {}) {
    const report = { statuses: [] };
    let id;
    for await (const message of stream(name, args)) {
        if (message.type === 'taskCreated') id = message.task.taskId;
        if (message.type === 'taskCreated') Object.assign(report, { created: message.task.status, ttl: message.task.ttl });
        if (message.type === 'taskStatus') report.statuses.push(message.task.status);
        if (message.type === 'result') Object.assign(report, { text: message.result.content[0].text, error: message.result.isError ?? false });
    }
    report.end = (await tasks.getTask(id)).status;
    if (report.text === undefined) {  // it reports a task that failed without its result
        const result = await tasks.getTaskResult(id, CallToolResultSchema);
        Object.assign(report, { text: result.content[0].text, error: result.isError });
    }
    return report;
}

// Cancel a task while it runs, and once more.
async function cancelled() {
    const report = { codes: [] };
    for await (const message of stream('hang', {})) {
        if (message.type !== 'taskCreated') break;
        const id = message.task.taskId;
        report.status = (await tasks.cancelTask(id)).status;
        report.later = (await tasks.getTask(id)).status;
        for (const again of [() => tasks.cancelTask(id), () => tasks.getTaskResult(id, CallToolResultSchema)]) {
            try { await again(); } catch (error) { report.codes.push(error.code); }
        }
        break;
    }
    return report;
}

const support = Object.fromEntries((await client.listTools()).tools.map(tool => [tool.name, tool.execution?.taskSupport]));
const report = { support };
report.add = await outcome('add', { a: 2, b: 3 });
report.greet = await outcome('greet');
report.fail = await outcome('fail');
report.hang = await cancelled();
console.log(JSON.stringify(report));
await client.close();
process.exit(0);
