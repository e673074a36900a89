// A real authorization server (npm's oidc-provider) on loopback. Its only argument is JSON; see Settings in provider.py.
// Prints {"issuer": …} on stdout once it listens. Each line on stdin is a command in JSON, each answered by one line.
// It ends with its standard input.
import { generateKeyPairSync, randomBytes } from 'node:crypto';
import { createServer } from 'node:http';
import { createInterface } from 'node:readline';
import { Provider, errors } from 'oidc-provider';

// Standard output belongs to the answers.
console.log = console.info = console.error;
const settings = JSON.parse(process.argv[2]);

// What the server stores. It outlives the Provider object, which is made anew when the keys change.
const records = new Map();
class Store {
    constructor(model) { this.model = model; }
    key(id) { return `${this.model}:${id}`; }
    async upsert(id, payload) { records.set(this.key(id), payload); }
    async find(id) { return records.get(this.key(id)); }
    async findBy(member, value) {
        for (const [key, payload] of records)
            if (key.startsWith(`${this.model}:`) && payload[member] === value) return payload;
    }
    findByUid(uid) { return this.findBy('uid', uid); }
    findByUserCode(code) { return this.findBy('userCode', code); }
    async consume(id) { records.get(this.key(id)).consumed = Math.floor(Date.now() / 1000); }
    async destroy(id) { records.delete(this.key(id)); }
    async revokeByGrantId(grant) {
        for (const [key, payload] of records) if (payload.grantId === grant) records.delete(key);
    }
}

// Keys, of each algorithm that access tokens are signed with.
const PAIRS = {
    RS256: ['rsa', { modulusLength: 2048 }], PS256: ['rsa', { modulusLength: 2048 }],
    ES256: ['ec', { namedCurve: 'P-256' }], EdDSA: ['ed25519', {}],
};
// What an identity provider does in another way (see `Facts` in tests/auth/providers.py), on top of the real server.
const facts = settings.facts;
let isComplete = true;  // whether the latest authorization request had the parameters that the provider needs
const DOCUMENTS = {
    '/.well-known/oauth-authorization-server': 'oauth', '/.well-known/openid-configuration': 'openid',
};
async function play(ctx, next) {
    const form = DOCUMENTS[ctx.path];
    if (form && !facts.documents.includes(form)) return;
    if (form) ctx.path = '/.well-known/openid-configuration';
    if (ctx.path === '/auth') isComplete = Object.entries(facts.needed).every(([name, value]) => ctx.query[name] === value);
    await next();
    if (form) ctx.body = { ...ctx.body, code_challenge_methods_supported: facts.pkce ?? undefined };
    if (ctx.path === '/token' && facts.answers) {
        if (ctx.status === 200) ctx.body = { ...ctx.body, scope: ctx.body.scope.replaceAll(' ', ',') };
        else ctx.status = 200;
    }
}

let generation = 0;
function signingKeys() {
    generation += 1;
    return [...new Set(['RS256', settings.algorithm])].map((alg) => ({
        ...generateKeyPairSync(...PAIRS[alg]).privateKey.export({ format: 'jwk' }),
        alg, use: 'sig', kid: `${alg.toLowerCase()}-${generation}`,
    }));
}
let keys = signingKeys();

const grants = [];  // [grant type, 'success' or the error], in order
const cookieKeys = [randomBytes(16).toString('hex')];
const nonceSecret = randomBytes(32);

function makeProvider(issuer) {
    const provider = new Provider(issuer, {
        adapter: Store,
        clients: settings.clients,
        jwks: { keys },
        cookies: { keys: cookieKeys },
        scopes: ['openid', 'offline_access', ...settings.scopes],
        clientAuthMethods: ['none', 'client_secret_basic', 'client_secret_post', 'private_key_jwt'],
        enabledJWA: { dPoPSigningAlgValues: ['ES256', 'EdDSA', 'RS256'] },
        pkce: { required: () => true },
        claims: { openid: ['sub'] },
        findAccount: (_ctx, id) => ({ accountId: id, claims: () => ({ sub: id }) }),
        issueRefreshToken: (_ctx, client) => client.grantTypeAllowed('refresh_token') && isComplete,
        expiresWithSession: () => false,
        rotateRefreshToken: settings.rotate_refresh_tokens,
        ttl: {
            AccessToken: settings.access_token_seconds, ClientCredentials: settings.access_token_seconds,
            RefreshToken: 3600, AuthorizationCode: 60, Grant: 3600, Session: 3600, Interaction: 600, IdToken: 3600,
            DeviceCode: 600,
        },
        // Documents that clients publish are handed over by the tests: the server asks nobody.
        fetch: async (url) => {
            const document = settings.documents[url];
            return document ? Response.json(document) : new Response('', { status: 404 });
        },
        features: {
            devInteractions: { enabled: true },
            clientCredentials: { enabled: true },
            deviceFlow: { enabled: true },
            introspection: { enabled: true },
            revocation: { enabled: true },
            registration: { enabled: settings.registration },
            clientIdMetadataDocument: { enabled: settings.client_id_metadata_document, ack: 'draft-02' },
            dPoP: { enabled: true, nonceSecret, requireNonce: () => settings.dpop_nonce },
            resourceIndicators: {
                enabled: true,
                useGrantedResource: () => true,
                defaultResource: () => settings.default_resource ?? undefined,
                getResourceServerInfo: (ctx, resource) => {
                    const asked = ctx.oidc.body?.resource ?? ctx.query.resource;
                    if (facts?.resource === 'refused' && asked)
                        throw new errors.InvalidTarget('AADSTS9010010: resource does not match the scopes');
                    if (!settings.resources.includes(resource)) throw new errors.InvalidTarget();
                    return {
                        scope: settings.scopes.join(' '), audience: resource, accessTokenFormat: settings.token_format,
                        accessTokenTTL: settings.access_token_seconds,
                        ...(settings.token_format === 'jwt' ? { jwt: { sign: { alg: settings.algorithm } } } : {}),
                    };
                },
            },
        },
    });
    if (facts) provider.use(play);
    provider.on('grant.success', (ctx) => grants.push([ctx.oidc.params.grant_type, 'success']));
    provider.on('grant.error', (ctx, error) => grants.push([ctx.oidc.params?.grant_type ?? '', error.error]));
    provider.on('server_error', (_ctx, error) => console.error(error));
    for (const event of ['authorization.error', 'registration_create.error', 'grant.error', 'device_authorization.error'])
        provider.on(event, (_ctx, error) => console.error(event, error.error, error.error_description, error.error_detail));
    return provider;
}

let handle;
const server = createServer((request, response) => handle(request, response));
server.listen(settings.port, '127.0.0.1', () => {
    const issuer = `http://127.0.0.1:${server.address().port}`;
    handle = makeProvider(issuer).callback();
    const say = (message) => process.stdout.write(`${JSON.stringify(message)}\n`);
    const commands = {
        grants: () => grants,
        replace_keys: () => { keys = signingKeys(); handle = makeProvider(issuer).callback(); },
        revoke_grants: () => {
            for (const key of records.keys())
                if (/^(Grant|AccessToken|RefreshToken|AuthorizationCode):/.test(key)) records.delete(key);
        },
        forget_clients: () => {
            for (const key of records.keys()) if (key.startsWith('Client:')) records.delete(key);
            handle = makeProvider(issuer).callback();
        },
        set: (changes) => { Object.assign(settings, changes); handle = makeProvider(issuer).callback(); },
    };
    createInterface({ input: process.stdin })
        .on('line', (line) => {
            const [name, argument] = JSON.parse(line);
            say(commands[name](argument) ?? null);
        })
        .on('close', () => process.exit(0));
    say({ issuer });
});
