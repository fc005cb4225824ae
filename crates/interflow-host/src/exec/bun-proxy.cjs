// Makes WebSocket, and requests with a plain agent of their own, go through the proxy that the environment names. Bun does so by
// itself for fetch and other requests. Its built-in `ws` cannot be reached from a script.
if (proxy && process.versions.bun) {
  const optionsOf = (url, protocols) => {
    const isList = typeof protocols === 'string' || Array.isArray(protocols);
    const options = isList ? { protocols } : { ...protocols };
    return options.proxy || isSkipped(new URL(url).hostname) ? options : { ...options, proxy };
  };
  globalThis.WebSocket = new Proxy(globalThis.WebSocket, {
    construct: (WebSocket, [url, protocols]) => new WebSocket(url, optionsOf(url, protocols)),
  });

  for (const name of ['http', 'https']) {
    const module = require(name);
    const request = module.request;
    const withoutAgent = (options) => {
      if (!options || options.agent === undefined || options instanceof URL) return options;
      const { agent, ...rest } = options;
      const isPlain = agent === false || agent?.constructor === module.Agent;
      return isPlain ? rest : options;
    };
    module.request = (...args) => request(...args.map((a) => (a && typeof a === 'object' ? withoutAgent(a) : a)));
    module.get = (...args) => {
      const made = module.request(...args);
      made.end();
      return made;
    };
  }
}
