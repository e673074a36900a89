// The official TypeScript SDK's client uses the cluster: `typescript.mjs ERA URL NAME`; as tally.py does it.
import { createInterface } from 'node:readline';
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';

const [era, url, name] = process.argv.slice(2, 5);
const CALL_MS = 15_000;
const HINT_MS = 20_000;
const uri = `cluster://${name}`;
const pause = ms => new Promise(resolve => setTimeout(resolve, ms));
const now = () => Date.now() / 1000;
const notes = [], missed = [], violations = [], calls = {}, errors = {};
let announced = 0, toldAnew = 0, lastEvent = '', number = 0, told = () => {};
const add = (counts, key) => { counts[key] = (counts[key] ?? 0) + 1; };
const key = () => `${name}-${++number}`;
let client, transport, end;

async function connect() {
    const mode = era === '2026' ? { pin: '2026-07-28' } : 'legacy';
    client = new Client({ name, version: '1' }, { capabilities: { elicitation: { form: {} } }, versionNegotiation: { mode } });
    client.setRequestHandler('elicitation/create', async ({ params }) => {
        const fields = Object.keys(params.requestedSchema.properties);
        return { action: 'accept', content: Object.fromEntries(fields.map(field => [field, `answer of ${params.message}`])) };
    });
    client.setNotificationHandler('notifications/resources/updated', () => told());
    const reconnectionOptions = { initialReconnectionDelay: 200, maxReconnectionDelay: 2000, reconnectionDelayGrowFactor: 1.5, maxRetries: 1000 };
    transport = new StreamableHTTPClientTransport(new URL(url), { reconnectionOptions });
    await client.connect(transport);
}

async function call(tool, args, onprogress) {
    const options = { timeout: CALL_MS, ...(onprogress && { onprogress }) };
    const result = await client.callTool({ name: tool, arguments: args }, options);
    if (result.isError) throw new Error(result.content[0].text);
    return result.content[0].text;
}

// Why a new stream of the session does not tell the change either; '' if it does. See tells_anew in tally.py.
async function tellsAnew() {
    const end = now() + HINT_MS / 1000;
    let why = 'a new stream does not tell it';
    while (now() < end) {
        const headers = { Accept: 'text/event-stream', 'Mcp-Session-Id': transport.sessionId, 'MCP-Protocol-Version': '2025-11-25' };
        if (lastEvent) headers['Last-Event-ID'] = lastEvent;
        try {
            const response = await fetch(url, { headers, signal: AbortSignal.timeout(10_000) });
            if (!response.ok) throw new Error(`HTTP ${response.status}`);
            const decoder = new TextDecoder();
            let text = '';
            for await (const chunk of response.body) {
                text += decoder.decode(chunk, { stream: true });
                lastEvent = [...text.matchAll(/^id: ?(.+)$/gm)].at(-1)?.[1] ?? lastEvent;
                if (text.includes(uri)) return '';
            }
        } catch (error) { why = `a new stream: ${error?.message}`; }
        await pause(500);
    }
    return why;
}

async function subscribe() {
    if (era === '2025') {
        for (;;) {
            try { await client.subscribeResource({ uri }); return; } catch { await pause(300); }
        }
    }
    for (;;) {
        try {
            const subscription = await client.listen({ resourceSubscriptions: [uri] });
            told();
            await subscription.closed;
        } catch { await pause(200); }
        announced++;
        told();
    }
}

const steps = {
    async note() {
        const mine = key();
        if (await call('note', { key: mine, text: `text of ${mine}` }) === mine) notes.push(mine);
    },
    async ask() {
        const mine = key();
        const text = await call('ask', { key: mine });
        if (text !== `${mine}=answer of What of ${mine}?`) violations.push(`a wrong answer to a question: ${text.slice(0, 100)}`);
    },
    async count() {
        const seen = [];
        const text = await call('count', { to: 20 }, ({ progress }) => seen.push(progress));
        await pause(200);
        if (text !== '20' || seen.join() !== Array.from({ length: 20 }, (_, i) => i + 1).join()) {
            violations.push(`events of a call that succeeded are missing: ${seen}`);
        }
    },
    async change() {
        let hint;
        const heard = new Promise(resolve => { hint = resolve; });
        told = () => hint(true);
        const pid = Number(await call('change', { name }));
        const answered = now();
        if (await Promise.race([heard, pause(HINT_MS).then(() => false)])) return;
        const why = era === '2025' ? await tellsAnew() : 'no session';
        const late = await Promise.race([heard, false]); // by its own stream meanwhile
        if (why && !late) missed.push([pid, answered, why]); else toldAnew++;
    }
};

async function repeat([kind, step]) {
    while (now() < end) {
        const begin = now();
        try { await step(); add(calls, kind); } catch (error) {
            const text = now() - begin > CALL_MS / 1000 - 0.5 ? 'no end' : `${error?.constructor?.name} ${String(error?.message).slice(0, 60)}`;
            add(errors, `${kind}: ${text}`);
        }
        await pause(100);
    }
}

process.on('unhandledRejection', () => {});
for (let attempt = 0; ; attempt++) {
    try { await connect(); break; } catch (error) {
        if (attempt === 19) { console.error(`no connection: ${error}`); process.exit(1); }
        await pause(500);
    }
}
subscribe();
await pause(500);
console.log('connected');
const [line] = await new Promise(resolve => createInterface({ input: process.stdin }).once('line', (...lines) => resolve(lines)));
const [until, settled] = line.split(' ').map(Number);
end = until;
await Promise.all(Object.entries(steps).map(repeat));
await pause(Math.max(0, (settled - now()) * 1000));
let usable = true;
for (const [kind, step] of Object.entries(steps)) {
    for (let attempt = 0; attempt < 3; attempt++) {
        try { await step(); break; } catch (error) {
            await pause(1000);
            if (attempt === 2) { usable = false; violations.push(`${kind} does not work at the end: ${String(error?.message).slice(0, 100)}`); }
        }
    }
}
console.log(JSON.stringify({ client: `typescript ${era}`, notes, missed, violations, calls, errors, announced, told_anew: toldAnew, usable }));
process.exit(0);
