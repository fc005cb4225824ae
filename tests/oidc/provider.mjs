// A certified OpenID Connect provider (oidc-provider) with three accounts. It prints its issuer, reads the redirect URL of its
// only client from the standard input, and serves until it is killed.
import { createServer } from 'node:http';
import { createInterface } from 'node:readline';
import Provider from 'oidc-provider';

const GROUPS = { anna: ['ops', 'privacy'], ben: ['staff'], eve: ['others'] };

const server = createServer();
await new Promise((done) => server.listen(0, '127.0.0.1', done));
const issuer = `http://localhost:${server.address().port}`;
console.log(`issuer ${issuer}`);
const { value: redirect } = await createInterface({ input: process.stdin })[Symbol.asyncIterator]().next();

const provider = new Provider(issuer, {
  clients: [{ client_id: 'interflow', client_secret: process.env.CLIENT_SECRET, redirect_uris: [redirect] }],
  claims: { openid: ['sub'], profile: ['preferred_username'], groups: ['groups'] },
  scopes: ['openid', 'profile', 'groups'],
  cookies: { keys: ['a key of the test'] },
  pkce: { required: () => true },
  findAccount: (_, id) => ({ accountId: id, claims: () => ({ sub: id, preferred_username: id, groups: GROUPS[id] ?? [] }) }),
});
server.on('request', provider.callback());
console.log('ready');
