// The client of the MCP SDK for Node at the MCP gateway: `mcp_gateway.mjs GATEWAY SERVER...`; the servers ask it for things.
import assert from "node:assert/strict";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import * as types from "@modelcontextprotocol/sdk/types.js";

const [gateway, ...servers] = process.argv.slice(2);
const MINE = "anna.berg@firm.com";
const THEIRS = "bob.stone@example.org";

function redacted(text) {
  assert(!text.includes(THEIRS) && text.includes("EMAIL"), text);
}

async function use(server) {
  const client = new Client({ name: "check", version: "1" }, { capabilities: { elicitation: {}, sampling: {}, roots: {} } });
  client.setRequestHandler(types.ElicitRequestSchema, async (request) => {
    redacted(request.params.message);
    return { action: "accept", content: { mail: MINE } };
  });
  client.setRequestHandler(types.CreateMessageRequestSchema, async (request) => {
    redacted(request.params.messages[0].content.text);
    return { role: "assistant", model: "mine", content: { type: "text", text: `Ask ${MINE}.` } };
  });
  client.setRequestHandler(types.ListRootsRequestSchema, async () => ({ roots: [{ uri: "file:///srv/work" }] }));
  const changed = new Promise((done) => client.setNotificationHandler(types.ToolListChangedNotificationSchema, done));
  const transport = new StreamableHTTPClientTransport(new URL(`${gateway}/mcp`));
  await client.connect(transport);
  const names = (await client.listTools()).tools.map((tool) => tool.name);
  assert(names.includes(`${server}__ask`), names.join());
  const call = async (tool, options) => {
    const result = await client.callTool({ name: `${server}__${tool}`, arguments: {} }, undefined, options);
    return result.content[0].text;
  };
  assert.equal(await call("ask"), `accept: ${MINE}`);
  if (names.includes(`${server}__think`)) {
    assert.equal(await call("think"), `mine: Ask ${MINE}.`);
    assert((await call("where")).startsWith("file:///srv/work"));
    const seen = [];
    assert.equal(await call("steps", { onprogress: (progress) => seen.push(progress.message) }), "done");
    assert.deepEqual(seen, ["step 1", "step 2"]);
  }
  assert.equal(await call("change"), "changed");
  await changed;
  await transport.terminateSession();
  await client.close();
  console.log(`passed   the MCP client of Node's SDK, server ${server}`);
}

for (const server of servers) await use(server);
process.exit(0);
