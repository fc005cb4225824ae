// Logs in as a browser does: follows redirects, keeps cookies by their rules for sites, and fills the provider's forms.
// usage: login.mjs ADMIN ACCOUNT; prints the status of the callback and what /api/v1/me answers.
const [admin, account] = process.argv.slice(2);

/** Cookies by origin and name. */
const jar = new Map();
const key = (url, name) => `${new URL(url).origin} ${name}`;

async function ask(url, init = {}, { isCrossSite = false } = {}) {
  const cookies = [...jar].filter(([k, c]) => k.startsWith(`${new URL(url).origin} `) && !(isCrossSite && c.strict));
  const cookie = cookies.map(([k, c]) => `${k.split(' ')[1]}=${c.value}`).join('; ');
  const response = await fetch(url, { ...init, redirect: 'manual', headers: { ...init.headers, ...(cookie ? { cookie } : {}) } });
  for (const line of response.headers.getSetCookie()) {
    const [pair, ...attributes] = line.split(';');
    const [name, ...value] = pair.split('=');
    const ended = attributes.some((a) => /^\s*max-age=0$/i.test(a) || /^\s*expires=thu, 01 jan 1970/i.test(a));
    if (ended) jar.delete(key(url, name));
    else jar.set(key(url, name), { value: value.join('='), strict: attributes.some((a) => /samesite=strict/i.test(a)) });
  }
  return response;
}

let url = `http://${admin}/login/oidc?next=/settings`;
let response = await ask(url);
for (let step = 0; step < 20; step += 1) {
  const location = response.headers.get('location');
  const isBack = location && new URL(location, url).host === admin && new URL(url).host !== admin;
  if (location) {
    url = new URL(location, url).href;
    response = await ask(url, {}, { isCrossSite: isBack });
    if (isBack) break;
    continue;
  }
  const text = await response.text();
  const action = /action="([^"]+)"/.exec(text)?.[1];
  if (!action) break;
  const prompt = /name="prompt" value="([^"]+)"/.exec(text)?.[1] ?? 'login';
  const body = new URLSearchParams({ prompt, ...(prompt === 'login' ? { login: account, password: 'any' } : {}) });
  url = new URL(action, url).href;
  response = await ask(url, { method: 'POST', body });
}
const page = await response.text();
console.log(`callback ${response.status} ${/url=([^"]+)"/.exec(page)?.[1] ?? ''}`);
if (response.status !== 200) console.log(page.replace(/<style>.*<\/style>/s, '').replace(/<[^>]+>/g, ' '));
const me = await ask(`http://${admin}/api/v1/me`);
console.log(`me ${me.status} ${await me.text()}`);
const body = await ask(`http://${admin}/api/v1/conversations`);
console.log(`conversations ${body.status}`);
