-- Sessions to which calls were added that ended before others that were there already: they are put together again in the
-- order in which their calls ended. An entry of an index has at most 2704 bytes, and clients choose the ids of sessions:
-- `digest` stands for it.
CREATE TABLE late_sessions(digest bytea PRIMARY KEY, session text COLLATE "C" NOT NULL);
