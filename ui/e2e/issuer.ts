// A small OpenID Connect issuer that logs one person in without asking. It is another site than the instance: localhost.
import { createSign, generateKeyPairSync, randomUUID, type KeyObject } from 'node:crypto';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';

const CLIENT = 'interflow';

export class Issuer {
  /** Groups of the person who logs in next. */
  groups: string[] = [];
  private readonly key: KeyObject;
  private readonly jwk: object;
  private readonly nonces = new Map<string, string>();

  private constructor(readonly url: string, private readonly server: Server) {
    const { publicKey, privateKey } = generateKeyPairSync('rsa', { modulusLength: 2048 });
    this.key = privateKey;
    this.jwk = { ...publicKey.export({ format: 'jwk' }), kid: 'one', alg: 'RS256', use: 'sig' };
    server.on('request', (request, response) => this.answer(request, response));
  }

  static async start(): Promise<Issuer> {
    const server = createServer();
    await new Promise<void>((done) => server.listen(0, '127.0.0.1', done));
    return new Issuer(`http://localhost:${(server.address() as AddressInfo).port}`, server);
  }

  stop(): void {
    this.server.closeAllConnections();
    this.server.close();
  }

  private answer(request: IncomingMessage, response: ServerResponse): void {
    const address = new URL(request.url ?? '/', this.url);
    const json = (value: object) => response.setHeader('content-type', 'application/json').end(JSON.stringify(value));
    if (address.pathname === '/.well-known/openid-configuration') {
      const at = (path: string) => this.url + path;
      json({ issuer: this.url, authorization_endpoint: at('/authorize'), token_endpoint: at('/token'), jwks_uri: at('/jwks') });
    } else if (address.pathname === '/jwks') json({ keys: [this.jwk] });
    else if (address.pathname === '/authorize') {
      const code = randomUUID();
      this.nonces.set(code, address.searchParams.get('nonce') ?? '');
      const back = new URL(address.searchParams.get('redirect_uri') ?? '');
      back.searchParams.set('code', code);
      back.searchParams.set('state', address.searchParams.get('state') ?? '');
      response.writeHead(302, { location: back.href }).end();
    } else if (address.pathname === '/token') {
      let body = '';
      request.on('data', (part: Buffer) => (body += part.toString()));
      request.on('end', () => {
        const nonce = this.nonces.get(new URLSearchParams(body).get('code') ?? '');
        json({ access_token: 'x', token_type: 'Bearer', id_token: this.sign(nonce) });
      });
    } else response.writeHead(404).end();
  }

  private sign(nonce: string | undefined): string {
    const now = Math.floor(Date.now() / 1000);
    const claims = { iss: this.url, aud: CLIENT, sub: 'u-1', name: 'Anna Example', groups: this.groups, nonce, iat: now, exp: now + 300 };
    const encode = (value: object) => Buffer.from(JSON.stringify(value)).toString('base64url');
    const text = `${encode({ alg: 'RS256', kid: 'one' })}.${encode(claims)}`;
    return `${text}.${createSign('RSA-SHA256').update(text).sign(this.key).toString('base64url')}`;
  }
}
