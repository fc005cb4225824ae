-- An entry of an index has at most 2704 bytes, and what a client sends may be longer: a method, a user's name, a session's
-- id. Indexes hold the beginnings of such texts. A character has at most four bytes.

DROP INDEX flows_method;
CREATE INDEX flows_method ON flows(left(lower(method), 512), id);
DROP INDEX flows_username;
CREATE INDEX flows_username ON flows(left(lower(username), 512), id) WHERE username IS NOT NULL;
DROP INDEX conversations_session;
CREATE INDEX conversations_session ON conversations(left(session, 512), updated);

-- Few flows have tags: those are read by this index, whatever is looked for in them.
DROP INDEX flows_tags;
CREATE INDEX flows_tagged ON flows(id) WHERE cardinality(tags) > 0;
