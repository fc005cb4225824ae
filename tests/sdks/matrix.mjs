// SDKs of Node with the dialects of the newest models: `matrix.mjs SDK GATEWAY PROVIDER`. SDK: openai, @anthropic-ai/sdk, @google/genai,
// or ai with one of its providers: ai/openai, ai/openai-chat, ai/openai-compatible, ai/anthropic, ai/google. The provider refuses
// what the real ones refuse; a client of the model's own format gets what the provider itself answers, and is no fault.

const [sdk, gateway, provider] = process.argv.slice(2);
// Upstream, model, and the format that is the model's own.
const MODELS = [
  ["openai", "gpt-6.2-astra", "responses"],
  ["openai", "gpt-6.2-sol", "responses"],
  ["anthropic", "claude-fable-5-2", "messages"],
  ["anthropic", "claude-opus-5-5", "messages"],
  ["anthropic", "claude-sonnet-5-5", "messages"],
  ["anthropic", "claude-haiku-5-5", "messages"],
  ["gemini", "gemini-4-argon", "generate"],
  ["gemini", "gemini-3.8-flash", "generate"],
  ["xai", "grok-4.7", "chat"],
  ["deepseek", "deepseek-v4-pro", "chat"],
  ["mistral", "mistral-large-4", "chat"],
  ["moonshot", "kimi-k3.1-pro", "chat"],
  ["qwencloud", "qwen3.8-max", "chat"],
  ["zai", "glm-5.3", "chat"],
];
const ASK = "I am Anna Berg, anna.berg@firm.com. What is the weather?";
const ARGUMENTS = '{"city":"Paris","days":3}';
const SCHEMA = {
  type: "object",
  properties: { city: { type: "string" }, days: { type: "integer" } },
  required: ["city", "days"],
  additionalProperties: false,
};
const PNG = "iVBORw0KGgo=";

function check(holds, value) {
  if (!holds) throw new Error(`unexpected: ${JSON.stringify(value)?.slice(0, 400)}`);
}

const same = (value) => JSON.stringify(value) === ARGUMENTS;

async function openai(url, model) {
  const { default: OpenAI } = await import("openai");
  const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: "k", maxRetries: 0 });
  const functions = [{ type: "function", function: { name: "weather", parameters: SCHEMA, strict: true } }];
  const tools = [{ type: "function", name: "weather", parameters: SCHEMA, strict: true }];
  const chat = async (stream, more = {}) => {
    const messages = [{ role: "user", content: ASK }];
    for (let turn = 0; turn < 2; turn++) {
      const body = { model, messages, tools: functions, ...more };
      const answer = stream ? await client.chat.completions.stream(body).finalMessage() : (await client.chat.completions.create(body)).choices[0].message;
      check(answer.tool_calls?.length === 2 && same(JSON.parse(answer.tool_calls[0].function.arguments)), answer);
      const calls = answer.tool_calls.map(({ id, type, function: { name, arguments: text } }) => ({ id, type, function: { name, arguments: text } }));
      const { content, reasoning_content } = answer;
      messages.push({ role: "assistant", content, tool_calls: calls, ...(reasoning_content && { reasoning_content }) });
      messages.push(...calls.map((call) => ({ role: "tool", tool_call_id: call.id, content: "rain" })));
      const { message } = (await client.chat.completions.create({ ...body, messages })).choices[0];
      check(message.content && !message.tool_calls, message);
      const thoughts = message.reasoning_content && { reasoning_content: message.reasoning_content };
      messages.push({ role: "assistant", content: message.content, ...thoughts }, { role: "user", content: "And tomorrow?" });
    }
  };
  const responses = async (stream, more = {}) => {
    const input = [{ role: "user", content: ASK }];
    for (let turn = 0; turn < 2; turn++) {
      const body = { model, input, tools, store: false, include: ["reasoning.encrypted_content"], ...more };
      const answer = stream ? await client.responses.stream(body).finalResponse() : await client.responses.create(body);
      const calls = answer.output.filter((item) => item.type === "function_call");
      check(calls.length === 2 && same(JSON.parse(calls[0].arguments)), answer);
      const plain = ({ parsed_arguments, status, ...item }) => item;
      input.push(...answer.output.map(plain), ...calls.map((call) => ({ type: "function_call_output", call_id: call.call_id, output: "rain" })));
      const last = await client.responses.create({ ...body, input });
      check(last.output_text, last);
      input.push(...last.output.map(plain), { role: "user", content: "And tomorrow?" });
    }
  };
  const image = [{ type: "text", text: ASK }, { type: "image_url", image_url: { url: `data:image/png;base64,${PNG}` } }];
  return {
    chat: {
      whole: () => chat(false),
      streamed: () => chat(true),
      "effort high": () => chat(true, { reasoning_effort: "high" }),
      "effort none": () => chat(false, { reasoning_effort: "none" }),
      forced: () => client.chat.completions.create({ model, messages: [{ role: "user", content: ASK }], tools: functions, tool_choice: "required", temperature: 0.2, stop: ["END"] }),
      image: () => client.chat.completions.create({ model, messages: [{ role: "user", content: image }] }),
    },
    responses: {
      whole: () => responses(false),
      streamed: () => responses(true),
      "effort max": () => responses(true, { reasoning: { effort: "max", summary: "auto" } }),
      forced: () => client.responses.create({ model, input: ASK, tools, tool_choice: "required", temperature: 0.2 }),
    },
  };
}

async function anthropic(url, model) {
  const { default: Anthropic } = await import("@anthropic-ai/sdk");
  const client = new Anthropic({ baseURL: url, apiKey: "k", maxRetries: 0 });
  const tools = [{ name: "weather", input_schema: SCHEMA }];
  const messages = async (stream, more = {}) => {
    const turns = [{ role: "user", content: ASK }];
    for (let turn = 0; turn < 2; turn++) {
      const body = { model, max_tokens: 9000, tools, ...more };
      const answer = stream ? await client.messages.stream({ ...body, messages: turns }).finalMessage() : await client.messages.create({ ...body, messages: turns });
      const calls = answer.content.filter((block) => block.type === "tool_use");
      check(calls.length === 2 && same(calls[0].input), answer);
      turns.push({ role: "assistant", content: answer.content });
      turns.push({ role: "user", content: calls.map((call) => ({ type: "tool_result", tool_use_id: call.id, content: "rain" })) });
      const last = await client.messages.create({ ...body, messages: turns });
      turns.push({ role: "assistant", content: last.content }, { role: "user", content: "And tomorrow?" });
    }
  };
  const user = [{ role: "user", content: ASK }];
  return {
    messages: {
      whole: () => messages(false),
      streamed: () => messages(true),
      adaptive: () => messages(true, { thinking: { type: "adaptive" }, output_config: { effort: "xhigh" } }),
      off: () => messages(false, { thinking: { type: "disabled" } }),
      forced: () => client.messages.create({ model, max_tokens: 900, messages: user, tools, tool_choice: { type: "any" } }),
      prefill: () => client.messages.create({ model, max_tokens: 900, messages: [...user, { role: "assistant", content: "Well" }] }),
      counted: () => client.messages.countTokens({ model, messages: user, tools }),
    },
  };
}

async function google(url, model) {
  const { GoogleGenAI } = await import("@google/genai");
  const client = new GoogleGenAI({ apiKey: "k", httpOptions: { baseUrl: url } });
  const config = { tools: [{ functionDeclarations: [{ name: "weather", parametersJsonSchema: SCHEMA }] }] };
  const generate = async (stream, more = {}) => {
    const contents = [{ role: "user", parts: [{ text: ASK }] }];
    for (let turn = 0; turn < 2; turn++) {
      const ask = { model, contents, config: { ...config, ...more } };
      const parts = [];
      if (stream) for await (const chunk of await client.models.generateContentStream(ask)) parts.push(...(chunk.candidates?.[0].content?.parts ?? []));
      else parts.push(...(await client.models.generateContent(ask)).candidates[0].content.parts);
      const calls = parts.filter((part) => part.functionCall);
      check(calls.length === 2 && same(calls[0].functionCall.args), parts);
      contents.push({ role: "model", parts });
      contents.push({ role: "user", parts: calls.map((part) => ({ functionResponse: { name: part.functionCall.name, response: { result: "rain" } } })) });
      const last = await client.models.generateContent(ask);
      contents.push(last.candidates[0].content, { role: "user", parts: [{ text: "And tomorrow?" }] });
    }
  };
  return { generate: { whole: () => generate(false), streamed: () => generate(true), "level high": () => generate(true, { thinkingConfig: { thinkingLevel: "HIGH", includeThoughts: true } }) } };
}

// Vercel's AI SDK: it runs the tools itself, and writes what its provider package writes.
async function ai(url, model, maker) {
  const { generateText, streamText, tool, stepCountIs, isStepCount, jsonSchema, Output } = await import("ai");
  const make = {
    openai: async () => (await import("@ai-sdk/openai")).createOpenAI({ baseURL: `${url}/v1`, apiKey: "k" }).responses(model),
    "openai-chat": async () => (await import("@ai-sdk/openai")).createOpenAI({ baseURL: `${url}/v1`, apiKey: "k" }).chat(model),
    "openai-compatible": async () => (await import("@ai-sdk/openai-compatible")).createOpenAICompatible({ name: "other", baseURL: `${url}/v1`, apiKey: "k", includeUsage: true }).chatModel(model),
    anthropic: async () => (await import("@ai-sdk/anthropic")).createAnthropic({ baseURL: `${url}/v1`, apiKey: "k" })(model),
    google: async () => (await import("@ai-sdk/google")).createGoogleGenerativeAI({ baseURL: `${url}/v1beta`, apiKey: "k" })(model),
  };
  const common = { model: await make[maker](), maxRetries: 0 };
  const executed = [];
  const tools = { weather: tool({ description: "Tells it", inputSchema: jsonSchema(SCHEMA), execute: (input) => (executed.push(input), "rain") }) };
  const loop = { ...common, tools, stopWhen: (stepCountIs ?? isStepCount)(3) };
  const user = (content) => ({ role: "user", content });
  const conversation = async (stream, more = {}) => {
    let streamError;
    const messages = [user(ASK)];
    for (let turn = 0; turn < 2; turn++) {
      executed.length = 0;
      const result = stream ? streamText({ ...loop, messages, onError: ({ error }) => (streamError = error), ...more }) : await generateText({ ...loop, messages, ...more });
      const text = await Promise.resolve(result.text).catch((error) => Promise.reject(streamError ?? error));
      check(text && executed.length === 2 && executed.every(same), [text, executed]);
      const response = await result.response;
      messages.push(...response.messages, user("And tomorrow?"));
    }
  };
  // These packages ask for JSON by a call, or without the schema; the provider says its text beside the call.
  const isStructured = maker.startsWith("openai") && maker !== "openai-compatible";
  const format = { openai: "responses", anthropic: "messages", google: "generate" }[maker] ?? "chat";
  return {
    [format]: {
      whole: () => conversation(false),
      streamed: () => conversation(true),
      "reasoning high": () => conversation(true, { reasoning: "high" }),
      "reasoning none": () => conversation(false, { reasoning: "none" }),
      sampling: () => generateText({ ...common, prompt: ASK, temperature: 0.4, topP: 0.9, topK: 4, presencePenalty: 0.5, stopSequences: ["END"], maxOutputTokens: 900 }),
      forced: () => generateText({ ...common, tools, prompt: ASK, toolChoice: "required" }),
      image: () => generateText({ ...common, messages: [user([{ type: "text", text: ASK }, { type: "image", image: Buffer.from(PNG, "base64"), mediaType: "image/png" }])] }),
      "structured output": async () => {
        if (!isStructured) return;
        const { output } = await generateText({ ...common, prompt: ARGUMENTS, output: Output.object({ schema: jsonSchema(SCHEMA) }) });
        check(same(output), output);
      },
      cancelled: async () => {
        const stop = new AbortController();
        const result = streamText({ ...common, prompt: ASK, abortSignal: stop.signal, onError: () => {} });
        for await (const _ of result.textStream) stop.abort();
      },
    },
  };
}

const casesAt = (url, model) => (sdk.startsWith("ai/") ? ai(url, model, sdk.slice(3)) : SDKS[sdk](url, model));
const SDKS = { openai, "@anthropic-ai/sdk": anthropic, "@google/genai": google };
let asked = 0;
const [failed, refused] = [[], []];
const skipped = [];
for (const [upstream, model, own] of MODELS) {
  const formats = await casesAt(`${gateway}/${upstream}`, model);
  const knobs = `~strict=1&echo=1&chunks=9&thinking=1&signed=1&tool=*&calls=2${upstream === "mistral" ? "&mistral=1" : ""}`;
  const direct = await casesAt(`${provider}/${knobs}`, model);
  for (const [format, cases] of Object.entries(formats)) {
    const isOwn = format === own || (format === "chat" && own === "responses");
    if (format === "generate" && own !== "generate" && (await cases.whole().then(() => false, () => true))) {
      skipped.push(model);
      continue;
    }
    for (const name of Object.keys(cases)) {
      asked += 1;
      const error = await cases[name]().then(() => null, (error) => error);
      if (!error) continue;
      const same = isOwn && (await direct[format][name]().then(() => false, () => true));
      (same ? refused : failed).push(`${upstream} ${model}, ${format}, ${name}: ${error.message?.slice(0, 300)} ${error.responseBody?.slice(0, 300) ?? ""}`);
    }
  }
}
failed.forEach((line) => console.log("failed ", line));
console.log(`${sdk}: ${asked} conversations, ${refused.length} refused by the provider of the client's own format, ${failed.length} failed${skipped.length ? `; not translated: ${skipped.join(", ")}` : ""}`);
process.exit(failed.length ? 1 : 0);
