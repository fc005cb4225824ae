// An MCP server of Node's SDK, over HTTP with sessions. It asks its client on the stream that belongs to no call.
import { randomUUID } from "node:crypto";
import http from "node:http";
import { McpServer } from "@modelcontextprotocol/sdk/server/mcp.js";
import { StreamableHTTPServerTransport } from "@modelcontextprotocol/sdk/server/streamableHttp.js";

const MAIL = "bob.stone@example.org";
const sessions = new Map();

function begin() {
  const server = new McpServer({ name: "asks", version: "1" }, { capabilities: { resources: { subscribe: true } } });
  server.registerTool("ask", { description: "asks" }, async () => {
    const answer = await server.server.elicitInput({
      message: `Forward to ${MAIL}?`,
      requestedSchema: { type: "object", properties: { mail: { type: "string" } }, required: ["mail"] },
    });
    return { content: [{ type: "text", text: `${answer.action}: ${answer.content?.mail}` }] };
  });
  server.registerTool("change", { description: "changes" }, async () => {
    await server.server.sendToolListChanged();
    return { content: [{ type: "text", text: "changed" }] };
  });
  const transport = new StreamableHTTPServerTransport({
    sessionIdGenerator: randomUUID,
    onsessioninitialized: (id) => sessions.set(id, transport),
  });
  server.connect(transport);
  return transport;
}

const listener = http.createServer((request, response) => {
  const transport = sessions.get(request.headers["mcp-session-id"]) ?? begin();
  transport.handleRequest(request, response);
});
listener.listen(0, "127.0.0.1", () => console.log(`listening on 127.0.0.1:${listener.address().port}`));
