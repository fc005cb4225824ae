-- API tokens of the admin side, as hashes. `change` grows with every token that is added, so that with the number of rows
-- it tells whether anything was added or removed.
CREATE TABLE api_tokens(
    id TEXT PRIMARY KEY, change BIGINT NOT NULL GENERATED ALWAYS AS IDENTITY, token TEXT NOT NULL, last_used BIGINT);

-- The audit trail of the admin sides of all replicas: `line` is JSON, `search` what the filter looks in, `at`
-- microseconds since the Unix epoch. `digest` makes sending a line twice harmless.
CREATE TABLE admin_audit(
    at BIGINT NOT NULL, digest TEXT NOT NULL, replica TEXT NOT NULL, search TEXT NOT NULL, line TEXT NOT NULL,
    PRIMARY KEY(at, digest));
