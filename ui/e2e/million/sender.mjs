// Sends requests through a proxy at a fixed rate, to an origin of its own: `sender.mjs HOST:PORT RATE SECONDS`. Prints what it
// reached, as JSON.
import { Agent, createServer, request } from 'node:http';

const [, , proxy, rate, seconds] = process.argv;
const [host, port] = proxy.split(':');
const origin = createServer((_, answer) => answer.writeHead(200, { 'content-type': 'application/json' }).end('{"ok":true}'));
await new Promise((ready) => origin.listen(0, '127.0.0.1', ready));
const target = `127.0.0.1:${origin.address().port}`;
const agent = new Agent({ keepAlive: true, maxSockets: 32 });
const start = performance.now();
let [sent, done, failed, open] = [0, 0, 0, 0];

function one() {
  sent += 1;
  open += 1;
  const ended = () => { open -= 1; };
  const asked = request({ host, port, agent, path: `http://${target}/new/${sent}`, headers: { host: target } }, (answer) => {
    answer.resume();
    answer.on('end', () => { done += 1; ended(); });
  });
  asked.on('error', () => { failed += 1; ended(); });
  asked.end();
}

const timer = setInterval(() => {
  const passed = (performance.now() - start) / 1000;
  if (passed >= Number(seconds)) {
    clearInterval(timer);
    setTimeout(() => {
      console.log(JSON.stringify({ wanted: Number(rate), reached: Math.round(done / passed), failed }));
      process.exit(0);
    }, 500);
    return;
  }
  // Missed requests are not queued up.
  const due = Math.min(Math.floor(passed * Number(rate)) - sent, 4000 - open);
  for (let i = 0; i < due; i += 1) one();
  if (due <= 0 && open >= 4000) sent = Math.floor(passed * Number(rate));
}, 5);
