"""What `interflow conversations export --format jsonl` holds after the talks: `check.py FILE [MODE OF NODE'S TALKS]…`."""

import json
import sys

conversations, items, exchanges = {}, {}, {}
for line in open(sys.argv[1], encoding="utf-8"):
    value = json.loads(line)
    if "conversation" in value:
        conversations[value["conversation"]["id"]] = value["conversation"]
    else:
        into, what = (items, "item") if "item" in value else (exchanges, "exchange")
        into.setdefault(value["conversation_id"], []).append(value[what])

failed = []


def expect(what, holds, seen=""):
    print(f"{'passed  ' if holds else 'failed  '} {what} {'' if holds else str(seen)[:600]}")
    if not holds:
        failed.append(what)


def of(title):
    found = [c for c in conversations.values() if title in c["title"]]
    return found[0]["id"] if found else None


def tools(conversation):
    return [i for i in items.get(conversation, []) if i["kind"] == "tool"]


def texts(conversation, kind="text"):
    return [i["text"] for i in items.get(conversation, []) if i["kind"] == kind]


NODE = [(f"Node {mode} {what}: use the tools", model) for mode in sys.argv[2:]
        for what, model in (("Anthropic", "claude-x"), ("chat", "gpt-x"), ("responses", "gpt-r"))]
for title, model in NODE + [("Use the tools for the weather", "claude-x"), ("Chat: use the tools", "gpt-x"), ("Responses: use the tools", "gpt-r"),
                     ("Gemini: use the tools", "gemini-x"), ("Ollama: use the tools", "llama-x"), ("Bedrock: use the tools", "claude-x")]:
    talk = of(title)
    expect(f"{title}: there is a conversation", talk, [c["title"] for c in conversations.values()])
    calls = [t for t in tools(talk) if t["name"] == "weather"]
    cities = sorted(t["input"].get("city", "") for t in calls)
    expect(f"{title}: two calls at once, arguments whole", cities == ["Oslo", "Paris"], calls)
    answers = [json.dumps(t["result"]) for t in calls]
    expect(f"{title}: each with its result", len(answers) == 2 and all("sunny" in a for a in answers), answers)
    expect(f"{title}: the answer", any("The tools say" in t for t in texts(talk)), texts(talk))
    expect(f"{title}: the model", all(model in e["model"] for e in exchanges[talk]), exchanges[talk])
    counted = [e["usage"] for e in exchanges[talk] if e.get("usage")]
    expect(f"{title}: tokens", counted and counted[0]["input"] >= 100 and counted[0]["output"] >= 8, counted)
    if model not in ("llama-x",):
        expect(f"{title}: cached tokens", any(u["cache_read"] for u in counted), counted)
    expect(f"{title}: stop reasons", all(e.get("stop") for e in exchanges[talk] if not e.get("error")), exchanges[talk])

main = of("Use the tools for the weather")
expect("thoughts are there", any("First the tax" in t for t in texts(main, "thinking")), items.get(main))
child = [c for c in conversations.values() if c.get("parent") == main]
expect("the sub-agent is the call's", len(child) == 1 and any(t.get("child") == child[0]["id"] for t in tools(main) if t["name"] == "Task"), child)
errors = [e.get("error") for e in exchanges[main] if e.get("error")]
expect("an error and a cut stream are told", len(errors) >= 2 and any("verloaded" in e for e in errors), errors)
expect("a shorter history is a branch or a conversation of its own", any("being continued" in json.dumps(c["title"]) for c in conversations.values())
       or any(i.get("begins") for i in items.get(main, [])), [c["title"] for c in conversations.values()])
for n in (1, 2):
    talk = of(f"agent {n} begins")
    mine = [t for t in texts(talk) if "agent" in t]
    expect(f"agent {n} is kept apart", len(mine) == 6 and all(f"agent {n}" in t for t in mine), mine)
chat = of("Chat: use the tools")
expect("the chat's error", any("Rate limit" in (e.get("error") or "") for e in exchanges[chat]), exchanges[chat])
expect("previous_response_id goes on", any("Ten coins." in t for t in texts(of("Responses: use the tools"))), texts(of("Responses: use the tools")))
sys.exit(bool(failed))
