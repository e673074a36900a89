// The official TypeScript SDK's client walks the plan; the same command line and report as the Python clients.
// With `--sdk v1` it is the client of version 1, which knows the handshake era only.
import { parseArgs } from 'node:util';
import { existsSync, readFileSync } from 'node:fs';

const STEP_LIMIT = 30_000;
const CANCEL_AFTER = 700;
const HEARD_LIMIT = 4_000;
const SILENCE = 300;
const HELD_LIMIT = 25_000;
const MODEL = 'interop-model';
const ROOTS = ['file:///interop/a', 'file:///interop/b'];
const { values: given, positionals } = parseArgs({
    allowPositionals: true,
    options: {
        transport: { type: 'string' },
        era: { type: 'string' },
        revision: { type: 'string' },
        plan: { type: 'string' },
        answers: { type: 'string', default: '{}' },
        hold: { type: 'string' },
        go: { type: 'string' },
        sdk: { type: 'string', default: 'v2' }
    }
});
const isV1 = given.sdk === 'v1';
const { Client, SSEClientTransport, StreamableHTTPClientTransport, StdioClientTransport, types } = isV1
    ? {
        ...(await import('@modelcontextprotocol/sdk/client/index.js')),
        ...(await import('@modelcontextprotocol/sdk/client/sse.js')),
        ...(await import('@modelcontextprotocol/sdk/client/stdio.js')),
        ...(await import('@modelcontextprotocol/sdk/client/streamableHttp.js')),
        types: await import('@modelcontextprotocol/sdk/types.js')
    }
    : { ...(await import('@modelcontextprotocol/client')), ...(await import('@modelcontextprotocol/client/stdio')) };
const target = positionals[0];
const plan = JSON.parse(given.plan);
const forms = JSON.parse(given.answers);
const isModern = given.era === '2026';
const steps = {};
const logs = [];
const heard = [];
const asked = [];
let announceWhenAsked = null;
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

// ---------------------------------------------------------------- the client, and what it answers

const capabilities = { elicitation: { form: {}, url: {} }, sampling: {}, roots: {} };
const mode = isModern ? { pin: given.revision } : 'legacy';
const client = new Client({ name: 'interop-typescript', version: '1.0' }, { capabilities, versionNegotiation: { mode } });

// Version 1 names a method by its schema.
const SCHEMAS = {
    'elicitation/create': 'ElicitRequestSchema',
    'sampling/createMessage': 'CreateMessageRequestSchema',
    'roots/list': 'ListRootsRequestSchema',
    'notifications/message': 'LoggingMessageNotificationSchema',
    'notifications/tools/list_changed': 'ToolListChangedNotificationSchema',
    'notifications/prompts/list_changed': 'PromptListChangedNotificationSchema',
    'notifications/resources/list_changed': 'ResourceListChangedNotificationSchema',
    'notifications/resources/updated': 'ResourceUpdatedNotificationSchema'
};
const named = method => (isV1 ? types[SCHEMAS[method]] : method);

client.setRequestHandler(named('elicitation/create'), async ({ params }) => {
    if (params.mode === 'url') {
        asked.push({ kind: 'url', message: params.message, url: params.url });
        return { action: 'accept' };
    }
    const fields = Object.keys(params.requestedSchema?.properties ?? {});
    asked.push({ kind: 'form', message: params.message, fields });
    if (announceWhenAsked) {
        const announce = announceWhenAsked;
        announceWhenAsked = null;
        announce();
        const deadline = performance.now() + HELD_LIMIT;
        while (!existsSync(given.go) && performance.now() < deadline) await pause(20);
    }
    const answer = forms[params.message] ?? 'decline';
    if (typeof answer === 'string') return { action: answer };
    const filled = fields.filter(name => name in answer || '*' in answer).map(name => [name, answer[name] ?? answer['*']]);
    return { action: 'accept', content: Object.fromEntries(filled) };
});
client.setRequestHandler(named('sampling/createMessage'), async ({ params }) => {
    const texts = params.messages.map(one => one.content).filter(block => block.type === 'text').map(block => block.text);
    asked.push({ kind: 'sample', texts, max_tokens: params.maxTokens });
    return { role: 'assistant', model: MODEL, content: { type: 'text', text: `thought of ${texts.at(-1) ?? 'nothing'}` } };
});
client.setRequestHandler(named('roots/list'), async () => {
    asked.push({ kind: 'roots' });
    return { roots: ROOTS.map(uri => ({ uri })) };
});
client.setNotificationHandler(named('notifications/message'), message => {
    logs.push({ level: message.params.level, data: message.params.data, logger: message.params.logger ?? null });
});
for (const kind of ['tools', 'prompts', 'resources']) {
    client.setNotificationHandler(named(`notifications/${kind}/list_changed`), () => { heard.push([kind, null]); });
}
client.setNotificationHandler(named('notifications/resources/updated'), message => { heard.push(['resource', message.params.uri]); });

function transport() {
    if (given.transport === 'stdio') {
        const [command, ...args] = JSON.parse(target);
        return new StdioClientTransport({ command, args, stderr: 'inherit' });
    }
    const kind = given.transport === 'sse' ? SSEClientTransport : StreamableHTTPClientTransport;
    return new kind(new URL(target));
}

async function connect() {
    const chosen = transport();
    let negotiated = null; // version 1 tells its transport only
    if (isV1) {
        const remember = chosen.setProtocolVersion?.bind(chosen);
        chosen.setProtocolVersion = version => { negotiated = version; remember?.(version); };
    }
    await client.connect(chosen);
    const info = client.getServerVersion();
    return {
        revision: isV1 ? negotiated : client.getNegotiatedProtocolVersion() ?? null,
        name: info?.name ?? null,
        version: info?.version ?? null,
        instructions: client.getInstructions() ?? null,
        capabilities: client.getServerCapabilities() ?? null
    };
}

async function call([name, args], options = {}) {
    const params = { name, arguments: args, ...options.params };
    return shape(await (isV1 ? client.callTool(params, undefined, options.request) : client.callTool(params, options.request)));
}

const lists = {
    tools: (...args) => client.listTools(...args),
    prompts: (...args) => client.listPrompts(...args),
    resources: (...args) => client.listResources(...args),
    templates: (...args) => client.listResourceTemplates(...args)
};

async function until(wanted) {
    const deadline = performance.now() + HEARD_LIMIT;
    const isThere = () => heard.some(one => JSON.stringify(one) === JSON.stringify(wanted));
    while (!isThere() && performance.now() < deadline) await pause(10);
}

const everyList = { toolsListChanged: true, promptsListChanged: true, resourcesListChanged: true };

async function open(uri) {
    if (isModern) {
        const subscription = await client.listen({ ...everyList, ...(uri && { resourceSubscriptions: [uri] }) });
        return { honoured: subscription.honoredFilter, closed: subscription.closed, close: () => subscription.close() };
    }
    if (uri) await client.subscribeResource({ uri });
    return { honoured: null, closed: new Promise(() => {}), close: async () => uri && client.unsubscribeResource({ uri }) };
}

// ---------------------------------------------------------------- the verbs of a plan

const withAsked = async work => {
    asked.length = 0;
    return { ...(await work()), asked: [...asked] };
};

const verbs = {
    async items(kind) {
        const name = kind === 'templates' ? 'resourceTemplates' : kind;
        if (!isV1) return { items: (await lists[kind](undefined, { cacheMode: 'bypass' }))[name], pages: null };
        const items = [];
        let pages = 0;
        for (let cursor; pages === 0 || cursor; pages++) {
            const page = await lists[kind]({ cursor });
            items.push(...page[name]);
            cursor = page.nextCursor;
        }
        return { items, pages };
    },
    page: (kind, cursor) => lists[kind]({ cursor }),
    call: (...item) => call(item),
    ask: (...item) => withAsked(() => call(item)),
    ask_prompt: (name, args) => withAsked(() => client.getPrompt({ name, arguments: args })),
    ask_read: uri => withAsked(() => client.readResource({ uri })),
    async read(uri) {
        return { contents: (await client.readResource({ uri })).contents };
    },
    prompt: (name, args) => client.getPrompt({ name, arguments: args }),
    async complete(reference, argument, value, chosen) {
        const ref = reference.prompt
            ? { type: 'ref/prompt', name: reference.prompt }
            : { type: 'ref/resource', uri: reference.resource };
        const context = chosen ? { context: { arguments: chosen } } : {};
        return (await client.complete({ ref, argument: { name: argument, value }, ...context })).completion;
    },
    request: async (method, params) =>
        client.request({ method, params }, isV1 ? types.ResultSchema : { '~standard': { version: 1, vendor: 'interop', validate: value => ({ value }) } }),
    async progress(...item) {
        const seen = [];
        const onprogress = p => seen.push([p.progress, p.total ?? null, p.message ?? null]);
        const answer = await call(item, { request: { onprogress } });
        await pause(100);
        return { ...answer, progress: seen };
    },
    async logging(name, args, level) {
        let level_error = null;
        const params = {};
        if (isModern) params._meta = { 'io.modelcontextprotocol/logLevel': level };
        else await client.setLoggingLevel(level).catch(error => { level_error = describe(error); });
        logs.length = 0;
        const answer = await call([name, args], { params });
        await pause(200);
        return { ...answer, logs: [...logs], level_error };
    },
    async cancel(...item) {
        const abort = new AbortController();
        const pending = call(item, { request: { signal: abort.signal } }).catch(error => describe(error));
        await pause(CANCEL_AFTER);
        abort.abort('the user changed his mind');
        return { ended: await pending };
    },
    limit: (...item) => call(item, { request: { timeout: CANCEL_AFTER } }),
    concurrent: items => Promise.all(items.map(item => call(item).catch(error => describe(error)))),
    async watch(uri, touch, changes) {
        const watching = await open(uri);
        heard.length = 0;
        if (uri) {
            await call(touch);
            await until(['resource', uri]);
        }
        for (const [kind, change] of Object.entries(changes)) {
            await call(change);
            await until([kind, null]);
        }
        const came = [...heard];
        await watching.close();
        heard.length = 0;
        if (uri) await call(touch);
        await pause(SILENCE);
        return { honoured: watching.honoured, heard: came, after: [...heard] };
    }
};

// Stay in the middle of calls, subscriptions and questions, say the server's pid, and see how each of them ends.
async function hold(what) {
    if (!(await step('pid', () => call(['pid', {}])))) return;
    const held = [];
    for (const one of what) {
        await new Promise(ready => {
            const begin = {
                call() { ready(); return call(plan.cancel.slice(1)); },
                ask() { announceWhenAsked = ready; return call(plan.elicit.slice(1)); },
                async listen() { const { closed } = await open(plan.watch[1]); ready(); return closed; }
            };
            held.push(step(one, begin[one]));
        });
    }
    console.log(JSON.stringify({ server_pid: Number(steps.pid.value.text) }));
    await Promise.all(held);
}

if (await step('connect', connect)) {
    if (given.hold) await hold(given.hold.split(','));
    else for (const [name, [verb, ...args]] of Object.entries(plan)) await step(name, () => verbs[verb](...args));
}
await step('close', () => client.close());
const home = `../node_modules/@modelcontextprotocol/${isV1 ? 'sdk' : 'client'}/package.json`;
const version = JSON.parse(readFileSync(new URL(home, import.meta.url))).version;
console.log(JSON.stringify({ client: `typescript ${version}`, transport: given.transport, era: given.era, steps }));
process.exitCode = 0;
