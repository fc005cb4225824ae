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
  await translatedOpenai(OpenAI);
  try {
    await client.chat.completions.create(ask, { headers: { "content-encoding": "nonsense" } });
  } catch (error) {
    if (error.code === "unsupported_content_encoding" && error.status === 400) return;
    throw error;
  }
  throw new Error("a body that cannot be read went through");
}

// OpenAI's SDK with upstreams of other formats.
async function translatedOpenai(OpenAI) {
  const ask = { model: "m", messages: [{ role: "user", content: SAID }], tools };
  for (const upstream of ["claude", "gem", "vgem", "converse", "command", "llama", "vclaude", "gpt", "reasoner"]) {
    const clientAt = (variant) => new OpenAI({ baseURL: at(`/${upstream}${variant}/v1`), apiKey: "k", maxRetries: 0 });
    const client = clientAt("-parallel");
    const { message } = (await client.chat.completions.create(ask)).choices[0];
    same(message.content, `${upstream}, chat`);
    checkCalls(message.tool_calls.map((call) => [call.id, JSON.parse(call.function.arguments)]), upstream);
    const results = message.tool_calls.map((call) => ({ role: "tool", tool_call_id: call.id, content: "rain" }));
    await client.chat.completions.create({ ...ask, messages: [...ask.messages, { role: message.role, content: message.content, tool_calls: message.tool_calls }, ...results] });
    const final = await client.chat.completions.stream(ask).finalMessage();
    same(final.content, `${upstream}, chat, stream`);
    checkCalls(final.tool_calls.map((call) => [call.id, JSON.parse(call.function.arguments)]), `${upstream}, stream`);
    const response = await client.responses.stream({ model: "m", input: SAID }).finalResponse();
    same(response.output_text, `${upstream}, responses, stream`);
    const called = response.output.filter((item) => item.type === "function_call");
    checkCalls(called.map((call) => [call.call_id, JSON.parse(call.arguments)]), `${upstream}, responses, stream`);
    const limited = () => clientAt("-limited").chat.completions.create(ask);
    await raises(OpenAI.RateLimitError, 429, limited, upstream);
    const broken = () => clientAt("-broken").responses.create({ model: "m", input: SAID });
    await raises(OpenAI.InternalServerError, 500, broken, upstream);
  }
}

function checkCalls(calls, place) {
  const ids = new Set(calls.map(([id]) => id));
  const good = calls.every(([, input]) => input.city === "Paris" && input.days === 3);
  if (calls.length !== 2 || ids.size !== 2 || !good) throw new Error(`${place}: ${JSON.stringify(calls)}`);
}

async function raises(kind, status, call, place) {
  try {
    await call();
  } catch (error) {
    if (error instanceof kind && error.status === status) return;
    throw new Error(`${place}: ${error}`);
  }
  throw new Error(`${place}: no ${kind.name}`);
}

async function useAnthropic() {
  const { default: Anthropic } = await import("@anthropic-ai/sdk");
  const client = new Anthropic({ baseURL: at("/anthropic"), apiKey: "k", defaultHeaders: ECHO });
  const ask = { model: "m", max_tokens: 4000, messages: [{ role: "user", content: SAID }] };
  same((await client.messages.create(ask)).content[0].text, "messages");
  same(await client.messages.stream(ask).finalText(), "stream");
  if (!configured) return;
  const weather = [{ name: "weather", input_schema: TOOL }];
  for (const upstream of ["gpt", "reasoner", "gem", "vgem", "converse", "command", "llama", "vclaude", "mistral"]) {
    const clientAt = (variant) => new Anthropic({ baseURL: at(`/${upstream}${variant}`), apiKey: "k", maxRetries: 0 });
    const parallel = clientAt("-parallel");
    const answer = await parallel.messages.create({ ...ask, tools: weather });
    const calls = answer.content.filter((block) => block.type === "tool_use");
    checkCalls(calls.map((call) => [call.id, call.input]), upstream);
    const results = calls.map((call) => ({ type: "tool_result", tool_use_id: call.id, content: "rain" }));
    const user = { role: "user", content: [...results, { type: "text", text: "And then?" }] };
    const turns = [...ask.messages, { role: "assistant", content: answer.content }, user];
    await parallel.messages.create({ ...ask, messages: turns, tools: weather });
    const final = await parallel.messages.stream({ ...ask, tools: weather }).finalMessage();
    same(final.content.map((block) => block.text ?? "").join(""), `${upstream}, stream`);
    const streamed = final.content.filter((block) => block.type === "tool_use");
    checkCalls(streamed.map((call) => [call.id, call.input]), `${upstream}, stream`);
    await raises(Anthropic.RateLimitError, 429, () => clientAt("-limited").messages.create(ask), upstream);
    await raises(Anthropic.InternalServerError, 529, () => clientAt("-overloaded").messages.create(ask), upstream);
  }
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

await { openai: useOpenai, "@anthropic-ai/sdk": useAnthropic, "@langchain/openai": useLangchain }[sdk]();
console.log("fine");
