// The official TypeScript SDK's client logs in at a server; the same command line and dialogue as client_auth_python.py.
// The last argument may be `--dpop`: its tokens are bound to a key.
import { createInterface } from 'node:readline';
import { Client, ClientCredentialsProvider, DpopSession, StreamableHTTPClientTransport, UnauthorizedError } from '@modelcontextprotocol/client';

const dpop = process.argv.includes('--dpop') ? await DpopSession.create() : undefined;
const [url, era, ...rest] = process.argv.slice(2).filter(argument => argument !== '--dpop');
const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
const say = message => process.stdout.write(`${JSON.stringify(message)}\n`);
const read = async () => {
    const { value, done } = await lines.next();
    return done ? undefined : JSON.parse(value);
};

class Person {
    constructor(redirectUrl, clientMetadataUrl) {
        Object.assign(this, { redirectUrl, clientMetadataUrl });
        this.clientMetadata = {
            client_name: 'official', redirect_uris: [redirectUrl], grant_types: ['authorization_code', 'refresh_token'],
            response_types: ['code'], token_endpoint_auth_method: 'none', application_type: 'native',
            ...(dpop ? { dpop_bound_access_tokens: true } : {})
        };
    }
    state() { return (this.expected = crypto.randomUUID()); }
    clientInformation() { return this.client; }
    saveClientInformation(client) { this.client = client; }
    tokens() { return this.saved; }
    saveTokens(tokens) { this.saved = tokens; }
    redirectToAuthorization(target) { say({ authorize: target.href }); }
    saveCodeVerifier(verifier) { this.verifier = verifier; }
    codeVerifier() { return this.verifier; }
    dpop() { return dpop; }
    invalidateCredentials(what) {
        if (what === 'all' || what === 'tokens') this.saved = undefined;
        if (what === 'all' || what === 'client') this.client = undefined;
    }
}

const authProvider = rest[0] === '--credentials'
    ? new ClientCredentialsProvider({ clientId: rest[1], clientSecret: rest[2], scope: 'notes' })
    : new Person(rest[0], rest[1]);

// The transport only opens the authorization URL: the application hands over the answer, and repeats what it did.
async function once(tool, args) {
    const transport = new StreamableHTTPClientTransport(new URL(url), { authProvider });
    const client = new Client(
        { name: 'official', version: '1' }, { versionNegotiation: { mode: era === '2025' ? 'legacy' : 'auto' } }
    );
    try {
        await client.connect(transport);
        const result = await client.callTool({ name: tool, arguments: args });
        const texts = result.content.filter(block => block.type === 'text').map(block => block.text);
        return { result: { texts, is_error: result.isError ?? false, revision: transport.protocolVersion } };
    } catch (error) {
        if (!(error instanceof UnauthorizedError)) throw error;
        const query = new URL((await read()).callback).searchParams;
        if (query.has('error')) throw new Error(`refused: ${query.get('error')}`);
        await transport.finishAuth(query);
    } finally {
        await client.close();
    }
    return await once(tool, args);
}

for (let asked; (asked = await read());) {
    try {
        say(await once(asked.call, asked.arguments ?? {}));
    } catch (error) {
        say({ error: `${error?.constructor?.name}: ${error?.message}` });
    }
}
process.exit(0);
