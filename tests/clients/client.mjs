// Node's own clients against the origin: plain, intercepted, a body up and down; proxy and trust come from the environment.
import assert from "node:assert";
import http from "node:http";
import https from "node:https";

const { PLAIN, SECURE } = process.env;
const body = "0123456789".repeat(10_000);

async function byFetch() {
  assert.equal((await (await fetch(`${PLAIN}/bytes/100`)).arrayBuffer()).byteLength, 100);
  for (let i = 0; i < 2; i++) {
    const answer = await fetch(`${SECURE}/echo`, { method: "POST", body });
    assert.equal(await answer.text(), body);
  }
}

function ask(url, options, sent) {
  const client = url.startsWith("https:") ? https : http;
  return new Promise((resolve, reject) => {
    const request = client.request(url, options, (answer) => {
      const chunks = [];
      answer.on("data", (chunk) => chunks.push(chunk)).on("error", reject);
      answer.on("end", () => resolve(Buffer.concat(chunks)));
    });
    request.on("error", reject);
    request.end(sent);
  });
}

async function byHttps() {
  assert.equal((await ask(`${PLAIN}/bytes/100`, {})).length, 100);
  for (let i = 0; i < 2; i++) {
    assert.equal((await ask(`${SECURE}/echo`, { method: "POST" }, body)).toString(), body);
  }
}

await (process.argv[2] === "fetch" ? byFetch() : byHttps());
console.log("fine");
