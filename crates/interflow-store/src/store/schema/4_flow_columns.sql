-- Blocks with when their first and last flow began. A block may be absent at any time: it is made again from its rows.
CREATE TABLE flow_columns(block INTEGER PRIMARY KEY, first INTEGER NOT NULL, last INTEGER NOT NULL, data BLOB NOT NULL);
