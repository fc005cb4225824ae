// One SDK of Node: `sdks.mjs SDK GATEWAY`, or `sdks.mjs SDK -` without configuration, behind the proxy. Fails when an
// answer is not what was said.

const [sdk, gateway] = process.argv.slice(2);
const configured = gateway !== "-";
const SAID = 'I am Anna Berg, anna.berg@firm.com, SSN 123-45-6789, and that is "all".';
// The fake provider repeats what it received when asked to.
const ECHO = { "x-echo": "1", "x-chunks": "20" };
const TOOL = { type: "object", properties: { city: { type: "string", description: "for anna.berg@firm.com" } } };
const tools = [{ type: "function", function: { name: "weather", parameters: TOOL } }];

function at(path) {
  return configured ? gateway + path : undefined;
}

function same(got, place) {
  if (got !== SAID) throw new Error(`${place}: ${JSON.stringify(got)}`);
}

async function useOpenai() {
  const { default: OpenAI } = await import("openai");
  const client = new OpenAI({ baseURL: at("/openai/v1"), apiKey: "k", defaultHeaders: ECHO });
  const ask = { model: "m", messages: [{ role: "user", content: SAID }] };
  same((await client.chat.completions.create(ask)).choices[0].message.content, "chat");
  let text = "";
  for await (const chunk of await client.chat.completions.create({ ...ask, stream: true })) {
    text += chunk.choices[0]?.delta?.content ?? "";
  }
  same(text, "stream");
  const called = await client.chat.completions.create({ ...ask, tools }, { headers: { "x-tool": "weather" } });
  const { city } = JSON.parse(called.choices[0].message.tool_calls[0].function.arguments);
  if (city !== "Paris") throw new Error(`a tool's argument: ${city}`);
  same((await client.responses.create({ model: "m", input: SAID })).output_text, "responses");
  text = "";
  for await (const event of await client.responses.create({ model: "m", input: SAID, stream: true })) {
    if (event.type === "response.output_text.delta") text += event.delta;
  }
  same(text, "responses, stream");
  if (!configured) return;
  try {
    await client.chat.completions.create(ask, { headers: { "content-encoding": "nonsense" } });
  } catch (error) {
    if (error.code === "unsupported_content_encoding" && error.status === 400) return;
    throw error;
  }
  throw new Error("a body that cannot be read went through");
}

async function useLangchain() {
  const { ChatOpenAI } = await import("@langchain/openai");
  const { ChatAnthropic } = await import("@langchain/anthropic");
  const models = (headers) => [
    new ChatOpenAI({ model: "m", apiKey: "k", configuration: { baseURL: at("/openai/v1"), defaultHeaders: headers } }),
    new ChatAnthropic({ model: "m", apiKey: "k", anthropicApiUrl: at("/anthropic"), clientOptions: { defaultHeaders: headers } }),
  ];
  const text = (message) => (typeof message.content === "string" ? message.content : message.content.map((p) => p.text ?? "").join(""));
  for (const chat of models(ECHO)) {
    const name = chat.constructor.name;
    same(text(await chat.invoke(SAID)), name);
    let all = "";
    for await (const piece of await chat.stream(SAID)) all += text(piece);
    same(all, `${name}, stream`);
  }
  for (const chat of models({ ...ECHO, "x-tool": "weather" })) {
    const said = await chat.bindTools([{ name: "weather", description: "for anna.berg@firm.com", schema: TOOL }]).invoke(SAID);
    if (said.tool_calls[0].args.city !== "Paris") throw new Error(JSON.stringify(said.tool_calls));
  }
}

await { openai: useOpenai, "@langchain/openai": useLangchain }[sdk]();
console.log("fine");
