CREATE TABLE hosts(id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);

-- What lists and queries look at. `chunks` names what lies in segments: see refs.rs.
CREATE TABLE flows(
    seq INTEGER PRIMARY KEY, id BLOB NOT NULL, state INTEGER NOT NULL, kind INTEGER NOT NULL, started INTEGER NOT NULL,
    duration INTEGER, transport INTEGER NOT NULL, scheme INTEGER NOT NULL, host INTEGER NOT NULL, port INTEGER NOT NULL,
    method TEXT, path TEXT, status INTEGER, version TEXT, user TEXT, client TEXT, listener TEXT,
    request_size INTEGER NOT NULL, response_size INTEGER NOT NULL, request_type TEXT, response_type TEXT,
    messages INTEGER NOT NULL, error TEXT, tags TEXT, stored INTEGER NOT NULL, kept INTEGER NOT NULL, chunks BLOB);
CREATE UNIQUE INDEX flows_id ON flows(id);
CREATE INDEX flows_host ON flows(host, id);
CREATE INDEX flows_open ON flows(seq) WHERE state = 0;

-- Everything else of a flow: see detail.rs.
CREATE TABLE details(seq INTEGER PRIMARY KEY, detail BLOB NOT NULL);

-- The end of a body that is still coming, until it is long enough to be cut.
CREATE TABLE tails(seq INTEGER, direction INTEGER, at INTEGER, bytes BLOB NOT NULL, PRIMARY KEY(seq, direction, at)) WITHOUT ROWID;

-- Blocks of messages: `meta` lists them, their payloads lie end to end in `payload` or in chunks: see messages.rs.
CREATE TABLE messages(seq INTEGER, first INTEGER, count INTEGER NOT NULL, meta BLOB NOT NULL, payload BLOB, chunks BLOB,
    PRIMARY KEY(seq, first)) WITHOUT ROWID;

-- Where chunks lie. Those of long bodies have their hash here, to be found when the same bytes come again.
CREATE TABLE chunks(id INTEGER PRIMARY KEY, segment INTEGER NOT NULL, offset INTEGER NOT NULL, len INTEGER NOT NULL, hash BLOB);
CREATE INDEX chunks_hash ON chunks(hash) WHERE hash IS NOT NULL;
