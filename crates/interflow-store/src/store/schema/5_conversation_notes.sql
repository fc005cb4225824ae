-- Added to these tables: whether an exchange failed, and what the operator notes.
ALTER TABLE conversation_exchanges ADD COLUMN failed INTEGER NOT NULL DEFAULT 0;
UPDATE conversation_exchanges SET failed = 1 WHERE json_valid(facts) AND json_extract(facts, '$.error') IS NOT NULL;

-- `message` is empty for the conversation as a whole; tags are separated by line breaks.
CREATE TABLE conversation_notes(
    conversation TEXT NOT NULL, message BLOB NOT NULL, tags TEXT NOT NULL, comment TEXT,
    PRIMARY KEY(conversation, message)) WITHOUT ROWID;
