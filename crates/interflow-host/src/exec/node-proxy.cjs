// Makes http, https and fetch of a Node without NODE_USE_ENV_PROXY go through the proxy that the environment names.
'use strict';
const [major, minor] = process.versions.node.split('.').map(Number);
const native = major >= 24 || (major === 22 && minor >= 21);
const proxy = process.env.HTTPS_PROXY || process.env.HTTP_PROXY;
if (proxy && !native) {
  const http = require('http');
  const https = require('https');
  const net = require('net');
  const tls = require('tls');
  const { hostname, port, username, password } = new URL(proxy);
  const login = `${decodeURIComponent(username)}:${decodeURIComponent(password)}`;
  const credentials = username ? { 'proxy-authorization': `Basic ${Buffer.from(login).toString('base64')}` } : {};
  const proxyHost = hostname.replace(/^\[|\]$/g, '');
  const skip = (process.env.NO_PROXY || '').split(',').map((s) => s.trim().replace(/^\*?\./, '')).filter(Boolean);
  const direct = (host) => skip.some((s) => s === '*' || host === s || host.endsWith('.' + s));

  // Opens a tunnel; gives the socket, or the error, to done.
  const tunnel = (host, targetPort, done) => {
    const authority = `${net.isIPv6(host) ? `[${host}]` : host}:${targetPort}`;
    // Without an agent, whose connections would go through the proxy again.
    const request = http.request({
      method: 'CONNECT', path: authority, headers: { host: authority, ...credentials },
      createConnection: () => net.connect(port, proxyHost),
    });
    request.once('connect', (response, socket, head) => {
      if (response.statusCode !== 200) {
        socket.destroy();
        done(new Error(`the proxy answered ${response.statusCode} to CONNECT ${authority}`));
        return;
      }
      if (head.length) socket.unshift(head);
      done(null, socket);
    });
    request.once('error', done);
    request.end();
  };

  const open = (secure, options, done) => {
    const host = options.host || options.hostname || 'localhost';
    const targetPort = options.port || (secure ? 443 : 80);
    tunnel(host.replace(/^\[|\]$/g, ''), targetPort, (error, socket) => {
      if (error) return done(error);
      if (!secure) return done(null, socket);
      const servername = options.servername || (net.isIP(host) ? '' : host);
      const over = tls.connect({ ...options, host: undefined, port: undefined, path: undefined, socket, servername });
      const failed = (e) => done(e);
      over.once('error', failed);
      over.once('secureConnect', () => { over.removeListener('error', failed); done(null, over); });
    });
  };

  for (const [module, secure] of [[http, false], [https, true]]) {
    const Agent = module.Agent;
    const create = Agent.prototype.createConnection;
    Agent.prototype.createConnection = function (options, done) {
      const host = options.host || options.hostname || 'localhost';
      if (options.socketPath || direct(host) || typeof done !== 'function') return create.call(this, options, done);
      open(secure, options, done);
      return undefined;
    };
  }

  // fetch: the dispatcher that it uses can be made anew with a connector of our own.
  const key = Symbol.for('undici.globalDispatcher.1');
  const install = () => {
    const now = globalThis[key];
    if (!now || now.interflow) return;
    const made = new now.constructor({
      connect: (options, done) => {
        const host = options.hostname;
        const secure = options.protocol === 'https:';
        const targetPort = options.port || (secure ? 443 : 80);
        if (direct(host)) {
          const socket = secure ? tls.connect({ host, port: targetPort, servername: options.servername || host })
            : net.connect(targetPort, host);
          socket.once(secure ? 'secureConnect' : 'connect', () => done(null, socket));
          socket.once('error', done);
          return socket;
        }
        open(secure, { ...options, host, port: targetPort, ALPNProtocols: ['http/1.1'] }, done);
        return undefined;
      },
    });
    made.interflow = true;
    globalThis[key] = made;
  };
  const fetch = globalThis.fetch;
  if (fetch) {
    // The first call makes Node load its own copy of undici, and with it the dispatcher.
    globalThis.fetch = function (...args) {
      if (!globalThis[key]) fetch('data:,').catch(() => {});
      install();
      return fetch.apply(this, args);
    };
  }
}
