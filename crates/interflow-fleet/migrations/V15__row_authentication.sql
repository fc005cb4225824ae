-- What proves that a row was written by a replica: see shared/row_key.rs. Rows of before are given theirs by the replica that
-- migrates the tables.
ALTER TABLE settings ADD COLUMN mac BYTEA;
ALTER TABLE api_tokens ADD COLUMN mac BYTEA;
