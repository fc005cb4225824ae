-- The tables of conversations. `facts` and `body` hold opaque JSON of the conversations component; long bodies are compressed.
CREATE TABLE conversations(
    id TEXT PRIMARY KEY, session TEXT NOT NULL, parent TEXT, started INTEGER NOT NULL, updated INTEGER NOT NULL,
    agent TEXT NOT NULL, model TEXT NOT NULL, provider TEXT NOT NULL, host TEXT NOT NULL, user TEXT NOT NULL,
    title TEXT NOT NULL, turns INTEGER NOT NULL, facts TEXT NOT NULL) WITHOUT ROWID;
CREATE INDEX conversations_session ON conversations(session, updated);
CREATE INDEX conversations_updated ON conversations(updated);
CREATE INDEX conversations_parent ON conversations(parent) WHERE parent IS NOT NULL;

CREATE TABLE conversation_nodes(
    n INTEGER PRIMARY KEY, conversation TEXT NOT NULL, key BLOB NOT NULL, parent BLOB, at INTEGER NOT NULL,
    facts TEXT NOT NULL, body BLOB NOT NULL);
CREATE UNIQUE INDEX conversation_nodes_key ON conversation_nodes(conversation, key);

CREATE TABLE conversation_exchanges(
    flow BLOB NOT NULL, part INTEGER NOT NULL, conversation TEXT NOT NULL, started INTEGER NOT NULL, leaf BLOB,
    agent TEXT NOT NULL, model TEXT NOT NULL, provider TEXT NOT NULL, input INTEGER NOT NULL, output INTEGER NOT NULL,
    cache_read INTEGER NOT NULL, cache_write INTEGER NOT NULL, reasoning INTEGER NOT NULL, cost REAL,
    facts TEXT NOT NULL, PRIMARY KEY(flow, part)) WITHOUT ROWID;
CREATE INDEX conversation_exchanges_of ON conversation_exchanges(conversation, started);
CREATE INDEX conversation_exchanges_started ON conversation_exchanges(started);

CREATE TABLE conversation_cursor(one INTEGER PRIMARY KEY CHECK(one = 1), flow BLOB NOT NULL);
