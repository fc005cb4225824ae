-- Codes that log one browser in, once, at any replica: their hashes. Unlogged: each is valid for a minute.
CREATE UNLOGGED TABLE login_codes(digest BYTEA PRIMARY KEY, expires TIMESTAMPTZ NOT NULL);
