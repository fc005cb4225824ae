// Makes http, https, fetch and WebSockets of Node go through the proxy that the environment names. With NODE_USE_ENV_PROXY, late
// versions do so for fetch and their default agents; agents that a library makes, and connections that it opens itself, are left.
const [major, minor] = process.versions.node.split('.').map(Number);
const native = major >= 24 || (major === 22 && minor >= 21);
if (proxy) {
  const http = require('http');
  const https = require('https');
  const net = require('net');
  const tls = require('tls');
  const { hostname, port, username, password } = new URL(proxy);
  const login = `${decodeURIComponent(username)}:${decodeURIComponent(password)}`;
  const credentials = username ? { 'proxy-authorization': `Basic ${Buffer.from(login).toString('base64')}` } : {};
  const proxyHost = hostname.replace(/^\[|\]$/g, '');
  // A library that reads the variables itself connects to the proxy, which must not go through the proxy again.
  const isProxy = (host, targetPort) => host.replace(/^\[|\]$/g, '') === proxyHost && Number(targetPort) === Number(port || 80);
  const direct = (host, targetPort) => isSkipped(host) || isProxy(host, targetPort);
  const request = http.request;

  // Opens a tunnel; gives the socket, or the error, to done.
  const tunnel = (host, targetPort, done) => {
    const authority = `${net.isIPv6(host) ? `[${host}]` : host}:${targetPort}`;
    // Without an agent, whose connections would go through the proxy again.
    const connect = request({
      method: 'CONNECT', path: authority, headers: { host: authority, ...credentials },
      createConnection: () => net.connect(port || 80, proxyHost),
    });
    connect.once('connect', (response, socket, head) => {
      if (response.statusCode !== 200) {
        socket.destroy();
        done(new Error(`the proxy answered ${response.statusCode} to CONNECT ${authority}`));
        return;
      }
      if (head.length) socket.unshift(head);
      done(null, socket);
    });
    connect.once('error', done);
    connect.end();
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

  // Whether a library's own way to connect is the plain one, as that of `ws`: one through SSH or a socket of its own is kept.
  const isPlain = (create) => create === net.createConnection || /\bconnect\(/.test(Function.prototype.toString.call(create));

  for (const [module, secure] of [[http, false], [https, true]]) {
    const Agent = module.Agent;
    const create = Agent.prototype.createConnection;
    Agent.prototype.createConnection = function (options, done) {
      const host = options.host || options.hostname || 'localhost';
      const throughProxyAlready = native && this.options && this.options.proxyEnv;
      if (throughProxyAlready || options.socketPath || direct(host, options.port) || typeof done !== 'function') {
        return create.call(this, options, done);
      }
      open(secure, options, done);
      return undefined;
    };

    // A request with a connection of its own uses no agent.
    const redirected = (options) => {
      if (!options || typeof options.createConnection !== 'function' || options.agent || options.socketPath) return options;
      const connects = options.createConnection;
      if (!isPlain(connects)) return options;
      const createConnection = (o, done) => {
        const host = o.host || o.hostname || 'localhost';
        if (direct(host, o.port)) return connects(o, done);
        open(secure, o, done);
        return undefined;
      };
      return { ...options, createConnection };
    };
    const requestOf = module.request;
    module.request = function (first, second, ...rest) {
      if (typeof first === 'string' || first instanceof URL) return requestOf.call(this, first, redirected(second), ...rest);
      return requestOf.call(this, redirected(first), second, ...rest);
    };
    module.get = function (...args) {
      const made = module.request(...args);
      made.end();
      return made;
    };
  }
  require('module').syncBuiltinESMExports();

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
        if (direct(host, targetPort)) {
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
  if (fetch && !native) {
    // The first call makes Node load its own copy of undici, and with it the dispatcher.
    globalThis.fetch = function (...args) {
      if (!globalThis[key]) fetch('data:,').catch(() => {});
      install();
      return fetch.apply(this, args);
    };
  }
}
