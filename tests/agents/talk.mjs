// Agents' talks with the SDKs for Node: `node talk.mjs gateway GATEWAY` with our base URLs, `node talk.mjs proxy PROVIDER PROXY` with
// the providers' own names through the proxy, `tls` the same over HTTPS that is looked into. Tools in parallel, streams, an error.
import assert from "node:assert";
import Anthropic from "@anthropic-ai/sdk";
import OpenAI from "openai";
import { ProxyAgent, setGlobalDispatcher, fetch as proxied } from "undici";

const [mode, place, proxy] = process.argv.slice(2);
const through = mode !== "gateway";
const scheme = mode === "tls" ? "https" : "http";
if (through) setGlobalDispatcher(new ProxyAgent(proxy));
const port = place.split(":").pop();
const base = (host, door) => (through ? `${scheme}://${host}:${port}` : `${place}/${door}`);
const common = { apiKey: "k", maxRetries: 0, ...(through ? { fetch: proxied } : {}) };
const schema = { type: "object", properties: { city: { type: "string" } } };

async function anthropic() {
  const client = new Anthropic({ baseURL: base("api.anthropic.com", "anthropic"), ...common });
  const tools = [{ name: "weather", input_schema: schema }, { name: "Task", input_schema: { type: "object" } }];
  const metadata = { user_id: `user_session_${{ gateway: "aaaaaaaa", proxy: "bbbbbbbb", tls: "cccccccc" }[mode]}-1111-2222-3333-444455556666` };
  const ask = { model: "claude-x", max_tokens: 200, tools, metadata };
  const messages = [{ role: "user", content: `Node ${mode} Anthropic: use the tools` }];
  const first = await client.messages.stream({ ...ask, messages }).finalMessage();
  const calls = first.content.filter((b) => b.type === "tool_use");
  messages.push({ role: "assistant", content: first.content });
  messages.push({ role: "user", content: calls.map((c) => ({ type: "tool_result", tool_use_id: c.id, content: "sunny" })) });
  const second = await client.messages.create({ ...ask, messages });
  assert.match(second.content[0].text, /The tools say/);
  messages.push({ role: "assistant", content: second.content }, { role: "user", content: "this will fail" });
  await assert.rejects(client.messages.create({ ...ask, messages }), (e) => e.status === 529);
}

async function openai() {
  const client = new OpenAI({ baseURL: `${base("api.openai.com", "openai")}/v1`, ...common });
  const tools = [{ type: "function", function: { name: "weather", parameters: schema } }];
  const messages = [{ role: "user", content: `Node ${mode} chat: use the tools` }];
  const first = await client.chat.completions.create({ model: "gpt-x", messages, tools });
  const answer = first.choices[0].message;
  messages.push(answer, ...answer.tool_calls.map((c) => ({ role: "tool", tool_call_id: c.id, content: "sunny" })));
  let text = "";
  const stream = await client.chat.completions.create({ model: "gpt-x", messages, tools, stream: true, stream_options: { include_usage: true } });
  for await (const chunk of stream) text += chunk.choices[0]?.delta?.content ?? "";
  assert.equal(text, "The tools say: sunny");
  const given = { model: "gpt-r", prompt_cache_key: `node-${mode}`, tools: [{ type: "function", name: "weather", parameters: schema, strict: false }] };
  const input = [{ role: "user", content: `Node ${mode} responses: use the tools` }];
  const called = await client.responses.create({ ...given, input });
  const outputs = called.output.filter((i) => i.type === "function_call").map((c) => ({ type: "function_call_output", call_id: c.call_id, output: "sunny" }));
  const last = await client.responses.create({ ...given, input: [...input, ...called.output, ...outputs] });
  assert.match(last.output_text, /The tools say/);
}

await anthropic();
await openai();
console.log("fine");
