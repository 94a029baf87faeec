-- 0001: the tables.
-- Changes: everything is new.
-- The previous release: there is none.
--
-- Every key leads with shard_id, so that all tables can be distributed by it (Citus) and one
-- action, its queue rows and its lock live together. No defaults that are computed, no triggers,
-- no sequences: ids come from the program. Fixed-width columns stand first: no padding.
--
-- Each index answers one kind of question and is of no use for another: by guid, by id, by lane. The
-- queues are often empty when statistics are taken, and to a planner that believes in one row all
-- indexes with a fitting column are the same; so the indexes by guid begin with it, and what is
-- looked up by guid is looked up by that alone. See also queries/work.sql. On Citus the shard must be
-- named besides; among equals the newest index is taken, so the index by guid is made last.

-- What would fail a whole batch is refused at the door: times that no program can hold, for one.
-- Domains, for a statement reads a table's CHECK anew from its text, and that of a domain once.
CREATE DOMAIN /*schema*/moment AS timestamptz
    CHECK (VALUE >= '0001-01-01 00:00+00' AND VALUE < '10000-01-01 00:00+00');
CREATE DOMAIN /*schema*/timeout_us AS bigint CHECK (VALUE BETWEEN 1 AND 86400000000);
CREATE DOMAIN /*schema*/retention_us AS bigint CHECK (VALUE BETWEEN 0 AND 31622400000000);
CREATE DOMAIN /*schema*/live_state AS text CHECK (VALUE IN ('active', 'paused'));

CREATE TABLE /*schema*/migration (
    version    int         NOT NULL,
    name       text        NOT NULL,
    applied_at timestamptz NOT NULL,
    CONSTRAINT migration_pkey PRIMARY KEY (version)
);

CREATE TABLE /*schema*/installation (
    id                uuid        NOT NULL,
    created_at        timestamptz NOT NULL,
    shard_count       int         NOT NULL,
    schema_version    int         NOT NULL,
    floor             int         NOT NULL,
    system_identifier bigint      NOT NULL,
    timeline          bigint      NOT NULL,
    database_oid      bigint      NOT NULL,
    limits_version    bigint      NOT NULL DEFAULT 0,
    CONSTRAINT installation_pkey PRIMARY KEY (id)
);

CREATE TABLE /*schema*/worker (
    worker_id    uuid        NOT NULL,
    started_at   timestamptz NOT NULL,
    heartbeat_at timestamptz NOT NULL,
    shards       int         NOT NULL,
    owner        text        NOT NULL,
    process      text, -- by which others can prove that it ended
    offer      text        NOT NULL DEFAULT '', -- queues and needs, if there is something to say
    CONSTRAINT worker_pkey PRIMARY KEY (worker_id)
) WITH (fillfactor = 10);

-- Updated every two seconds: room on the page keeps the updates out of the index.
CREATE TABLE /*schema*/shard_lock (
    beat                     bigint NOT NULL,
    lease_guid               uuid,
    heartbeat_at             timestamptz,
    last_processing_start_at timestamptz,
    incoming_mark            timestamptz,
    shard_id                 int    NOT NULL,
    owner                    text,
    CONSTRAINT shard_lock_pkey PRIMARY KEY (shard_id)
) WITH (fillfactor = 10, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);

CREATE TABLE /*schema*/scheduled_action (
    guid                      uuid        NOT NULL,
    created_at                /*schema*/moment NOT NULL,
    updated_at                /*schema*/moment NOT NULL,
    scheduled_at              /*schema*/moment,
    occurrence_at             /*schema*/moment NOT NULL,
    expires_at                /*schema*/moment,
    occurrence_no             bigint      NOT NULL,
    timeout_us                /*schema*/timeout_us      NOT NULL,
    retention_us              /*schema*/retention_us      NOT NULL,
    shard_id                  int         NOT NULL,
    attempts                  int         NOT NULL,
    succeeded                 int         NOT NULL,
    failed                    int         NOT NULL,
    interrupted               int         NOT NULL,
    consecutive_failures      int         NOT NULL,
    consecutive_interruptions int         NOT NULL,
    occurrence_failures       int         NOT NULL,
    priority                  smallint    NOT NULL,
    keyed                     boolean     NOT NULL,
    state                     /*schema*/live_state        NOT NULL,
    queue                     text COLLATE "C" NOT NULL,
    id                        text COLLATE "C" NOT NULL,
    spec                      text        NOT NULL,
    last_attempt              text,
    creator                   text COLLATE "C",
    series                    uuid, -- the first guid, if pause, resume or run now changed it
    reason                    text, -- why it is paused
    paused_until              /*schema*/moment -- when it goes on by itself
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000);

-- Most actions never expire and are not in it.
CREATE INDEX scheduled_action_expiry_idx
    ON /*schema*/scheduled_action (shard_id, expires_at) WHERE expires_at IS NOT NULL;

-- What is paused, for who looks for it; and pauses that end by themselves, in that order.
CREATE INDEX scheduled_action_paused_idx
    ON /*schema*/scheduled_action (shard_id, id) WHERE state = 'paused';

CREATE INDEX scheduled_action_paused_until_idx
    ON /*schema*/scheduled_action (shard_id, paused_until, id) WHERE paused_until IS NOT NULL;

-- Counts what a token's name has alive; what was created without a token is not in it.
CREATE INDEX scheduled_action_creator_idx
    ON /*schema*/scheduled_action (creator) WHERE creator IS NOT NULL;

-- What fails and is tried again, for who looks for it; no column that a result changes is in it.
CREATE INDEX scheduled_action_failing_idx
    ON /*schema*/scheduled_action (shard_id, id) WHERE occurrence_failures > 0;

-- What comes again, for who looks ahead. Only a change of the spec touches it.
CREATE INDEX scheduled_action_recurring_idx
    ON /*schema*/scheduled_action (shard_id, id) WHERE position('"policy":{' IN spec) > 0;

CREATE INDEX scheduled_action_series_idx
    ON /*schema*/scheduled_action (series) WHERE series IS NOT NULL;

ALTER TABLE /*schema*/scheduled_action
    ADD CONSTRAINT scheduled_action_pkey PRIMARY KEY (shard_id, id);

CREATE INDEX scheduled_action_guid_idx ON /*schema*/scheduled_action (guid);

-- A first attempt that is due on arrival runs here, in place: no index knows of what begin writes, and
-- the page has room for it, so that the index stays as it is. `created_at` is the action's `updated_at`.
CREATE TABLE /*schema*/incoming_queue (
    created_at     timestamptz NOT NULL,
    guid           uuid        NOT NULL,
    scheduled_at   timestamptz NOT NULL,
    attempt_id     uuid, -- NULL, as all that follows about the attempt: idle
    began_at       timestamptz,
    deadline_at    timestamptz,
    reserved_until timestamptz,
    shard_id       int         NOT NULL,
    priority       smallint    NOT NULL,
    queue          text COLLATE "C" NOT NULL,
    owner          text,
    CONSTRAINT incoming_queue_pkey PRIMARY KEY (shard_id, created_at, guid)
) WITH (
    fillfactor = 45, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000
);

CREATE TABLE /*schema*/processing_queue (
    guid         uuid        NOT NULL,
    scheduled_at timestamptz NOT NULL,
    attempt_id   uuid,
    began_at     timestamptz,
    deadline_at  timestamptz,
    shard_id     int         NOT NULL,
    attempts     int         NOT NULL,
    priority     smallint    NOT NULL,
    running      boolean     NOT NULL,
    swept        boolean     NOT NULL,
    queue        text COLLATE "C" NOT NULL,
    owner        text,
    need         text COLLATE "C" NOT NULL DEFAULT '' -- of a row that was handed back
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000);

-- What was handed back, for those who serve it. Most often there is none.
CREATE INDEX processing_queue_need_idx
    ON /*schema*/processing_queue (need, shard_id, queue, priority, scheduled_at) WHERE need <> '';

CREATE INDEX processing_queue_lane_idx
    ON /*schema*/processing_queue (shard_id, queue, priority, need, scheduled_at) INCLUDE (running);

-- For the sweeper: attempts whose reservation passed, without walking over a backlog.
CREATE INDEX processing_queue_running_idx
    ON /*schema*/processing_queue (shard_id, scheduled_at) WHERE running;

ALTER TABLE /*schema*/processing_queue
    ADD CONSTRAINT processing_queue_pkey PRIMARY KEY (guid, shard_id);

CREATE TABLE /*schema*/finished_action (
    guid                      uuid        NOT NULL,
    created_at                /*schema*/moment NOT NULL,
    updated_at                /*schema*/moment NOT NULL,
    finished_at               /*schema*/moment NOT NULL,
    purge_at                  timestamptz NOT NULL,
    occurrence_at             /*schema*/moment NOT NULL,
    began_at                  /*schema*/moment,
    attempt_id                uuid,
    occurrence_no             bigint      NOT NULL,
    shard_id                  int         NOT NULL,
    attempts                  int         NOT NULL,
    succeeded                 int         NOT NULL,
    failed                    int         NOT NULL,
    interrupted               int         NOT NULL,
    consecutive_failures      int         NOT NULL,
    consecutive_interruptions int         NOT NULL,
    occurrence_failures       int         NOT NULL,
    priority                  smallint    NOT NULL,
    keyed                     boolean     NOT NULL,
    state                     text        NOT NULL,
    queue                     text COLLATE "C" NOT NULL,
    id                        text COLLATE "C" NOT NULL,
    spec                      text        NOT NULL,
    last_attempt              text,
    reason                    text,
    CONSTRAINT finished_action_state_check
        CHECK (state IN ('done', 'dead', 'cancelled', 'expired'))
) PARTITION BY RANGE (finished_at);

-- What operators look for; the ordinary success pays nothing for it.
CREATE INDEX finished_action_trouble_idx
    ON /*schema*/finished_action (shard_id, id) WHERE state <> 'done';

-- For the figures: few are dead, and they are counted by queue.
CREATE INDEX finished_action_dead_idx
    ON /*schema*/finished_action (queue, purge_at) WHERE state = 'dead';

-- Tells the janitor whether a day is over, for next to nothing at each insert.
CREATE INDEX finished_action_purge_idx ON /*schema*/finished_action USING brin (purge_at);

ALTER TABLE /*schema*/finished_action
    ADD CONSTRAINT finished_action_pkey PRIMARY KEY (shard_id, id, guid, finished_at);

-- For repeats: only what was created with a key can be asked for by its guid.
CREATE INDEX finished_action_guid_idx ON /*schema*/finished_action (guid) WHERE keyed;

CREATE TABLE /*schema*/finished_action_default PARTITION OF /*schema*/finished_action DEFAULT;

CREATE TABLE /*schema*/attempt_log (
    guid          uuid        NOT NULL,
    attempt_id    uuid        NOT NULL,
    began_at      /*schema*/moment NOT NULL,
    ended_at      /*schema*/moment,
    occurrence_no bigint      NOT NULL,
    shard_id      int         NOT NULL,
    attempt_no    int         NOT NULL,
    id            text COLLATE "C" NOT NULL,
    outcome       text        NOT NULL,
    error         text,
    answer        text,
    owner         text
) PARTITION BY RANGE (began_at);

CREATE INDEX attempt_log_id_idx ON /*schema*/attempt_log (shard_id, id, began_at);

-- Attempts that were asked to end, for the workers that make them.
CREATE INDEX attempt_log_cancelling_idx ON /*schema*/attempt_log (owner, began_at)
    WHERE outcome = 'cancelling';

ALTER TABLE /*schema*/attempt_log
    ADD CONSTRAINT attempt_log_pkey PRIMARY KEY (attempt_id, shard_id, began_at);

CREATE TABLE /*schema*/attempt_log_default PARTITION OF /*schema*/attempt_log DEFAULT;

-- Who may call. Rows are never removed: a server that needs tokens must not forget that it does.
CREATE TABLE /*schema*/token (
    token_id   uuid        NOT NULL,
    created_at /*schema*/moment NOT NULL,
    expires_at /*schema*/moment,
    revoked_at /*schema*/moment,
    rate       double precision,
    live_max   int,
    digest     bytea       NOT NULL,
    name       text COLLATE "C" NOT NULL,
    scopes     text[]      NOT NULL,
    CONSTRAINT token_pkey PRIMARY KEY (token_id),
    CONSTRAINT token_digest_key UNIQUE (digest),
    CONSTRAINT token_values_check CHECK (
        rate > 0 AND rate < 'infinity' AND array_position(scopes, NULL) IS NULL)
);

CREATE INDEX token_name_idx ON /*schema*/token (name, created_at);

-- Who changed what, written by the change's own transaction. No key: nothing ever looks one up, and
-- an insert here must never be what a change fails on.
CREATE TABLE /*schema*/audit (
    at       timestamptz NOT NULL,
    guid     uuid        NOT NULL,
    shard_id int         NOT NULL,
    count    int         NOT NULL,
    verb     text        NOT NULL,
    actor    text        NOT NULL,
    id       text        NOT NULL,
    face     text        NOT NULL
) PARTITION BY RANGE (at);

CREATE INDEX audit_at_idx ON /*schema*/audit (at);

CREATE TABLE /*schema*/audit_default PARTITION OF /*schema*/audit DEFAULT;

-- What may happen at once and how often. Its row is locked while the parallelism is shared out.
CREATE TABLE /*schema*/work_limit (
    rate     double precision,
    parallel int,
    burst    int,
    kind     text COLLATE "C" NOT NULL,
    name     text COLLATE "C" NOT NULL,
    CONSTRAINT work_limit_pkey PRIMARY KEY (kind, name),
    CONSTRAINT work_limit_values_check CHECK (
        kind IN ('queue', 'target', 'stage') AND coalesce(parallel, rate) IS NOT NULL
        AND parallel BETWEEN 0 AND 1000000 AND rate BETWEEN 0 AND 1000000
        AND burst BETWEEN 1 AND 1000000)
) WITH (fillfactor = 10, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);

-- How much of a limit each worker may use, as it was told when it asked last.
CREATE TABLE /*schema*/limit_grant (
    worker_id  uuid        NOT NULL,
    asked_at   timestamptz NOT NULL,
    since      timestamptz NOT NULL,
    wanted     int         NOT NULL,
    counted    int         NOT NULL,
    allowed    int         NOT NULL,
    is_waiting boolean     NOT NULL,
    kind       text COLLATE "C" NOT NULL,
    name       text COLLATE "C" NOT NULL,
    CONSTRAINT limit_grant_pkey PRIMARY KEY (kind, name, worker_id)
) WITH (fillfactor = 10, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);

-- What was counted of attempts: by minute, later by hour. `span` is in seconds, 0 while the row is one
-- worker's count of a minute. `counts` is an array in JSON, see `gnomon.model.history`.
CREATE TABLE /*schema*/history (
    at        timestamptz NOT NULL,
    worker_id uuid        NOT NULL,
    span      int         NOT NULL,
    queue     text COLLATE "C" NOT NULL,
    counts    text        NOT NULL,
    CONSTRAINT history_pkey PRIMARY KEY (queue, at, span, worker_id)
);

CREATE INDEX history_span_idx ON /*schema*/history (span, at);

-- Which set of actions a program declares at present. Its row is locked while that is decided.
CREATE TABLE /*schema*/program (
    seen_at     /*schema*/moment NOT NULL,
    set_no      bigint      NOT NULL,
    name        text COLLATE "C" NOT NULL,
    fingerprint text        NOT NULL,
    known       text        NOT NULL, -- fingerprints of its sets, the latest last
    CONSTRAINT program_pkey PRIMARY KEY (name)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);

-- What living programs serve, for forms: one row for each release.
CREATE TABLE /*schema*/function_set (
    began_at    /*schema*/moment NOT NULL,
    seen_at     /*schema*/moment NOT NULL,
    program     text COLLATE "C" NOT NULL,
    fingerprint text COLLATE "C" NOT NULL,
    functions   text        NOT NULL,
    CONSTRAINT function_set_pkey PRIMARY KEY (program, fingerprint)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);

-- What is known of the actions that programs declared. One row each, also when it has ended.
CREATE TABLE /*schema*/declared_action (
    set_no      bigint      NOT NULL,
    paused_as   uuid, -- the generation that the removal paused
    shard_id    int         NOT NULL,
    is_removed  boolean     NOT NULL,
    id          text COLLATE "C" NOT NULL,
    program     text COLLATE "C" NOT NULL,
    fingerprint text        NOT NULL,
    CONSTRAINT declared_action_pkey PRIMARY KEY (shard_id, id)
);

CREATE INDEX declared_action_program_idx ON /*schema*/declared_action (program);

-- How far running attempts are, as their functions say. Whoever reports nothing is not in it.
CREATE TABLE /*schema*/attempt_progress (
    attempt_id uuid             NOT NULL,
    at         timestamptz      NOT NULL,
    fraction   double precision NOT NULL,
    shard_id   int              NOT NULL,
    id         text COLLATE "C" NOT NULL,
    said       text             NOT NULL,
    CONSTRAINT attempt_progress_pkey PRIMARY KEY (shard_id, id)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);

-- The way in by SQL (docs/reference/sql.md), for plain PostgreSQL. Who calls needs no right on any
-- table: the functions have their owner's, and nobody may call them until `grant_sql` says so.
--
-- The rules are those of admission in Python (a test holds them together). They stand twice, for
-- speed: the `…_fit` functions say at once whether a task is good, for all rows of a statement; only
-- what they refuse goes through the `check_…` functions, which say what is wrong with it. Functions
-- in SQL are for inlining, and so have no search_path of their own; those that call them have one.

-- As `gnomon.model.ids.shard_of`. Not immutable, as convert_to is not: else it is not inlined.
CREATE FUNCTION /*schema*/shard_hash(name text) RETURNS bigint
LANGUAGE sql STABLE PARALLEL SAFE AS $$
    SELECT ('x' || encode(substring(sha256(convert_to(name, 'UTF8')) FROM 1 FOR 4), 'hex'))::bit(32)::bigint
$$;

-- How many shards there are. Who installs puts the number into it, for good: to look it up in a table
-- would be a tenth of what `schedule` costs.
CREATE FUNCTION /*schema*/shard_count() RETURNS int
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$ SELECT 0 $$;

-- A stored spec, NULL if it is no JSON: one bad row must not hide the others.
CREATE FUNCTION /*schema*/spec_json(spec text) RETURNS jsonb
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN spec::jsonb;
EXCEPTION WHEN data_exception OR program_limit_exceeded THEN
    RETURN NULL;
END
$$;

-- Of a stored spec what it does, as a short array in JSON: type, function, target.
CREATE FUNCTION /*schema*/effect_names(spec text) RETURNS text
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    effect jsonb;
BEGIN
    effect := spec::jsonb -> 'action';
    RETURN jsonb_build_array(
        left(effect ->> 'type', 200), left(effect ->> 'function', 200), left(effect ->> 'target', 200)
    )::text;
EXCEPTION WHEN data_exception OR program_limit_exceeded THEN
    RETURN NULL;
END
$$;

CREATE FUNCTION /*schema*/refuse(field text, rule text, value text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RAISE EXCEPTION '%: % (got %)', left(field, 300), rule, coalesce(left(value, 100), 'NULL')
        USING ERRCODE = '22023';
END
$$;

CREATE FUNCTION /*schema*/check_fields(field text, given jsonb, kinds jsonb) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    name text;
    kind text;
BEGIN
    IF given IS NULL OR jsonb_typeof(given) <> 'object' THEN
        PERFORM /*schema*/refuse(field, 'must be an object', given::text);
    END IF;
    FOR name, kind IN SELECT e.key, jsonb_typeof(e.value) FROM jsonb_each(given) AS e LOOP
        IF NOT kinds ? name THEN
            PERFORM /*schema*/refuse(field || '.' || name, 'there is no such field here', kind);
        ELSIF kinds ->> name <> 'any' AND NOT kind = ANY (string_to_array(kinds ->> name, '|')) THEN
            PERFORM /*schema*/refuse(field || '.' || name, 'must be: ' || (kinds ->> name), kind);
        END IF;
    END LOOP;
END
$$;

CREATE FUNCTION /*schema*/check_texts(field text, given jsonb) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    name text;
BEGIN
    FOR name IN SELECT e.key FROM jsonb_each(coalesce(given, '{}')) AS e
        WHERE jsonb_typeof(e.value) <> 'string'
    LOOP
        PERFORM /*schema*/refuse(field || '.' || name, 'must be a string', given ->> name);
    END LOOP;
END
$$;

-- Seconds out of a number, or out of a text that PostgreSQL reads as an interval.
CREATE FUNCTION /*schema*/seconds_of(field text, given jsonb, from_s numeric, to_s numeric)
RETURNS numeric
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    seconds numeric;
BEGIN
    BEGIN
        seconds := CASE jsonb_typeof(given)
            WHEN 'number' THEN round((given #>> '{}')::numeric, 6)
            ELSE extract(epoch FROM (given #>> '{}')::interval)
        END;
    EXCEPTION WHEN data_exception THEN
        PERFORM /*schema*/refuse(field, 'must be a duration such as 30 or "5m"', given::text);
    END;
    IF seconds NOT BETWEEN from_s AND to_s THEN
        PERFORM /*schema*/refuse(
            field, format('must be between %s and %s seconds', from_s, to_s), given::text);
    END IF;
    RETURN seconds;
END
$$;

-- Without what has no shape or another one than it seems: controls, odd blanks, marks of direction.
CREATE FUNCTION /*schema*/is_printable(given text, bytes_max int) RETURNS boolean
LANGUAGE sql IMMUTABLE AS $$
    SELECT octet_length(given) <= bytes_max AND (given ~ '^[ -~]*$' OR given !~
        '[\u0001-\u001f\u007f-\u00a0\u00ad\u0600-\u0605\u061c\u06dd\u070f\u1680\u180e\u2000-\u200f\u2028-\u202f\u205f-\u206f\u3000\ue000-\uf8ff\ufeff\ufff0-\uffff]')
$$;

-- What is rare in a URL: an IPv6 address, long or strange names, high ports.
CREATE FUNCTION /*schema*/host_fits(url text) RETURNS boolean
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    place text := substring(url FROM '^[^/]*//([^/?]*)');
    host text := regexp_replace(place, ':[0-9]*$', '');
BEGIN
    IF substring(place FROM ':([0-9]*)$')::numeric > 65535 AND place !~ '\]$' THEN
        RETURN false;
    END IF;
    IF host LIKE '[%' THEN
        RETURN family(btrim(host, '[]')::inet) = 6;
    END IF;
    RETURN length(host) <= 253 AND host ~ '^[A-Za-z0-9_-]{1,63}(\.[A-Za-z0-9_-]{1,63})*\.?$';
EXCEPTION WHEN data_exception THEN
    RETURN false;
END
$$;

-- Header names and values of a call or a message.
CREATE FUNCTION /*schema*/headers_fit(kind text, headers jsonb) RETURNS boolean
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    name text;
    value text;
    count int := 0;
    names text[] := '{}';
BEGIN
    IF jsonb_typeof(headers) <> 'object' THEN
        RETURN false;
    END IF;
    FOR name, value IN
        SELECT lower(e.key), CASE jsonb_typeof(e.value) WHEN 'string' THEN e.value #>> '{}' END
        FROM jsonb_each(headers) AS e
    LOOP
        count := count + 1;
        IF value IS NULL OR count > 32 OR name = ANY (names)
            OR length(name) > (CASE kind WHEN 'rabbitmq' THEN 128 ELSE 1024 END)
            OR name !~ '^[!#$%&''*+.^_`|~0-9a-z-]+$' OR length(value) > 1024 OR value !~ '^[ -~]*$'
            OR name LIKE 'gnomon-%'
            OR kind = 'http' AND (
                name ~ '^(proxy|webhook)-' OR name IN (
                    'host', 'content-length', 'transfer-encoding', 'expect', 'cookie',
                    'traceparent', 'connection', 'keep-alive', 'te', 'trailer', 'upgrade')
                OR value LIKE 'secret://%' AND value !~ '^secret://[A-Za-z0-9._-]{1,64}$')
            OR kind = 'rabbitmq' AND (
                name ~ '^x-(first|last)-death-'
                OR name IN ('cc', 'bcc', 'x-death', 'x-received-from'))
        THEN
            RETURN false;
        END IF;
        names := names || name;
    END LOOP;
    RETURN true;
END
$$;

-- The success codes of a call.
CREATE FUNCTION /*schema*/codes_fit(codes jsonb) RETURNS boolean
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN jsonb_typeof(codes) = 'array' AND jsonb_array_length(codes) <= 32
        AND NOT EXISTS (
            SELECT FROM jsonb_array_elements(codes) AS c WHERE c::text !~ '^[1-5][0-9][0-9]$');
END
$$;

-- jsonb does not tell whole numbers from others: what has 19 digits might be either.
CREATE FUNCTION /*schema*/payload_fits(kind text, payload jsonb, payload_text text)
RETURNS boolean
LANGUAGE sql IMMUTABLE AS $$
    SELECT octet_length(payload_text) <= 65536
    AND (octet_length(payload_text) < 64 OR NOT payload
        @? 'strict $.**{33 to last} ? (@.type() == "object" || @.type() == "array")')
    AND NOT payload @? 'strict $.** ? (@ >= 1000000000000000000 || @ <= -1000000000000000000)'
    AND CASE kind
        WHEN 'http' THEN
            payload - '{method,url,headers,body,json,success}'::text[] = '{}'
            AND payload ->> 'method' IN ('GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE')
            AND jsonb_typeof(payload -> 'url') = 'string' AND length(payload ->> 'url') <= 2048
            AND payload ->> 'url' ~ '^[hH][tT][tT][pP][sS]?://([A-Za-z0-9_.-]+|\[[0-9A-Fa-f:.]+\])(:0*[1-9][0-9]{0,4})?([/?][!"$-\[\]-~]*)?$'
            AND (
                length(split_part(payload ->> 'url', '/', 3)) < 64
                AND split_part(payload ->> 'url', '/', 3) NOT LIKE ALL ('{.%,%..%,[%,%:_____%}')
                OR /*schema*/host_fits(payload ->> 'url'))
            AND coalesce(jsonb_typeof(payload -> 'body'), 'null') IN ('string', 'null')
            AND (payload ->> 'body' IS NULL OR payload ->> 'json' IS NULL)
            AND (payload ->> 'method' NOT IN ('GET', 'HEAD')
                OR payload ->> 'body' IS NULL AND payload ->> 'json' IS NULL)
            AND (NOT payload ? 'headers' OR /*schema*/headers_fit(kind, payload -> 'headers'))
            AND (NOT payload ? 'success' OR /*schema*/codes_fit(payload -> 'success'))
        WHEN 'rabbitmq' THEN
            payload - '{target,routing_key,exchange,body,json,headers,content_type}'::text[] = '{}'
            AND jsonb_typeof(payload -> 'target') = 'string'
            AND payload ->> 'target' ~ '^[A-Za-z0-9._-]{1,64}$'
            AND jsonb_typeof(payload -> 'routing_key') = 'string'
            AND coalesce(jsonb_typeof(payload -> 'exchange'), 'string') = 'string'
            AND coalesce(payload ->> 'exchange', '') || (payload ->> 'routing_key') <> ''
            AND /*schema*/is_printable(coalesce(payload ->> 'exchange', ''), 255)
            AND /*schema*/is_printable(payload ->> 'routing_key', 255)
            AND coalesce(jsonb_typeof(payload -> 'body'), 'null') IN ('string', 'null')
            AND (payload ->> 'body' IS NULL OR payload ->> 'json' IS NULL)
            AND coalesce(jsonb_typeof(payload -> 'content_type'), 'null') IN ('string', 'null')
            AND coalesce(payload ->> 'content_type', 'a') ~ '^[ -~]{1,255}$'
            AND (NOT payload ? 'headers' OR /*schema*/headers_fit(kind, payload -> 'headers'))
        WHEN 'kafka' THEN
            payload - '{target,topic,key,value,json,headers}'::text[] = '{}'
            AND jsonb_typeof(payload -> 'target') = 'string'
            AND payload ->> 'target' ~ '^[A-Za-z0-9._-]{1,64}$'
            AND jsonb_typeof(payload -> 'topic') = 'string'
            AND payload ->> 'topic' ~ '^[A-Za-z0-9._-]{1,249}$'
            AND payload ->> 'topic' !~ '^(__|\.{1,2}$)'
            AND coalesce(jsonb_typeof(payload -> 'key'), 'null') IN ('string', 'null')
            AND octet_length(coalesce(payload ->> 'key', '')) <= 1024
            AND coalesce(jsonb_typeof(payload -> 'value'), 'null') IN ('string', 'null')
            AND (payload ->> 'value' IS NULL OR payload ->> 'json' IS NULL)
            AND coalesce(payload ->> 'key', payload ->> 'value', payload ->> 'json') IS NOT NULL
            AND (NOT payload ? 'headers' OR /*schema*/headers_fit(kind, payload -> 'headers'))
        WHEN 'python' THEN
            payload - '{function,args,kwargs}'::text[] = '{}'
            AND jsonb_typeof(payload -> 'function') = 'string'
            AND payload ->> 'function' ~ '^[A-Za-z0-9._-]{1,64}$'
            AND coalesce(jsonb_typeof(payload -> 'args'), 'array') = 'array'
            AND coalesce(jsonb_typeof(payload -> 'kwargs'), 'object') = 'object'
        ELSE false
    END
$$;

CREATE FUNCTION /*schema*/task_fits(
    id text, kind text, payload jsonb, payload_text text, starts timestamptz,
    present timestamptz, max_attempts int, ends timestamptz
) RETURNS boolean
LANGUAGE sql STABLE AS $$
    -- now() is when the transaction began: what was meant by it is not late, however long it took.
    SELECT (id IS NULL
        OR length(id) <= 200 AND id ~ '^[A-Za-z0-9._:@-]+$' AND id NOT IN ('.', '..'))
    AND jsonb_typeof(payload) = 'object' AND /*schema*/payload_fits(kind, payload, payload_text)
    AND starts < '9000-01-01Z' AND (starts >= present - interval '10 minutes' OR starts = now())
    AND max_attempts BETWEEN 1 AND 1000001
    AND (ends IS NULL OR ends > starts AND ends > present)
$$;

CREATE FUNCTION /*schema*/check_payload(place text, kind text, payload jsonb) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    field text := place || 'payload';
    kinds jsonb := '{
        "http": {"method": "string", "url": "string", "headers": "object", "body": "string|null",
                 "json": "any", "success": "array"},
        "rabbitmq": {"target": "string", "routing_key": "string", "exchange": "string",
                     "body": "string|null", "json": "any", "headers": "object",
                     "content_type": "string|null"},
        "kafka": {"target": "string", "topic": "string", "key": "string|null",
                  "value": "string|null", "json": "any", "headers": "object"},
        "python": {"function": "string", "args": "array", "kwargs": "object"}
    }';
    needed jsonb := '{"http": ["method", "url"], "rabbitmq": ["target", "routing_key"],
                      "kafka": ["target", "topic"], "python": ["function"]}';
    item text;
BEGIN
    IF kind IS NULL OR NOT kinds ? kind THEN
        PERFORM /*schema*/refuse(
            place || 'task_type', 'must be one of http, rabbitmq, kafka, python', kind);
    END IF;
    PERFORM /*schema*/check_fields(field, payload, kinds -> kind);
    FOR item IN SELECT jsonb_array_elements_text(needed -> kind) LOOP
        IF NOT payload ? item THEN
            PERFORM /*schema*/refuse(field || '.' || item, 'is required', NULL);
        END IF;
    END LOOP;
    IF octet_length(payload::text) > 65536 THEN
        PERFORM /*schema*/refuse(
            field, 'must be at most 65536 bytes', octet_length(payload::text)::text);
    END IF;
    IF /*schema*/payload_fits(kind, payload, payload::text) THEN
        RETURN;
    END IF;
    PERFORM /*schema*/check_texts(field || '.headers', payload -> 'headers');
    -- No value is shown: a URL, a header or a body may hold a secret.
    IF payload ? 'headers' AND NOT /*schema*/headers_fit(kind, payload -> 'headers') THEN
        PERFORM /*schema*/refuse(
            field || '.headers', 'at most 32 tokens that are the caller''s to say, with visible ASCII',
            (SELECT string_agg(k, ', ') FROM jsonb_object_keys(payload -> 'headers') AS k));
    ELSIF payload ? 'success' AND NOT /*schema*/codes_fit(payload -> 'success') THEN
        PERFORM /*schema*/refuse(
            field || '.success', 'must be codes from 100 to 599, at most 32', payload ->> 'success');
    ELSIF payload ->> 'json' IS NOT NULL
        AND coalesce(payload ->> 'body', payload ->> 'value') IS NOT NULL
    THEN
        PERFORM /*schema*/refuse(field || '.json', 'must not be given together with a text', 'both');
    ELSIF kind = 'http'
        AND payload ->> 'method' NOT IN ('GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE')
    THEN
        PERFORM /*schema*/refuse(
            field || '.method', 'must be GET, HEAD, POST, PUT, PATCH or DELETE', payload ->> 'method');
    ELSIF kind = 'http' AND payload ->> 'method' IN ('GET', 'HEAD')
        AND coalesce(payload ->> 'body', payload ->> 'json') IS NOT NULL
    THEN
        PERFORM /*schema*/refuse(
            field || '.body', 'must not be sent with ' || (payload ->> 'method'), 'one');
    ELSIF NOT /*schema*/payload_fits(
        kind, payload - '{json,args,kwargs,body}'::text[],
        (payload - '{json,args,kwargs,body}'::text[])::text
    ) THEN
        PERFORM /*schema*/refuse(
            field || '.' || (needed -> kind ->> -1),
            'or another field is not what the reference says of ' || kind || ' actions', 'hidden');
    END IF;
    PERFORM /*schema*/refuse(
        field, 'must be nested at most 32 levels deep, with numbers of at most 18 digits', 'more');
END
$$;

-- Options, as they are stored: columns, and what stands behind in the spec and in its `retry`.
CREATE FUNCTION /*schema*/options_of(
    place text, given jsonb, OUT timeout_us bigint, OUT retention_us bigint, OUT queue text,
    OUT priority smallint, OUT ends timestamptz, OUT retry_tail text, OUT tail text
)
LANGUAGE plpgsql STABLE AS $$
DECLARE
    field text := place || 'options';
    utc text := 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"';
    retry jsonb;
    labels jsonb;
    seconds numeric;
    least_s numeric := 1;
    most_s numeric := 1;
    item text;
    most numeric;
    rank numeric;
BEGIN
    timeout_us := 15000000;
    retention_us := 604800000000;
    queue := 'default';
    priority := 5;
    retry_tail := '';
    tail := '';
    IF given = '{}' THEN
        RETURN;
    END IF;
    PERFORM /*schema*/check_fields(field, given, '{
        "retry": "object", "timeout": "number|string", "retention": "number|string",
        "deadline": "string", "queue": "string", "priority": "number", "labels": "object"}');
    retry := coalesce(given -> 'retry', '{}');
    labels := coalesce(given -> 'labels', '{}');
    PERFORM /*schema*/check_fields(field || '.retry', retry, '{
        "min_period": "number|string", "max_period": "number|string", "scale": "number",
        "back_off": "number", "jitter": "number"}');
    IF retry ? 'min_period' THEN
        least_s := /*schema*/seconds_of(
            field || '.retry.min_period', retry -> 'min_period', 1, 316224000);
    END IF;
    most_s := least_s;
    IF retry ? 'max_period' THEN
        most_s := /*schema*/seconds_of(
            field || '.retry.max_period', retry -> 'max_period', least_s, 316224000);
    END IF;
    IF retry <> '{}' THEN
        retry_tail := ',"min_period":"PT' || trim_scale(least_s) || 'S","max_period":"PT'
            || trim_scale(most_s) || 'S"';
    END IF;
    FOREACH item IN ARRAY ARRAY['scale', 'back_off', 'jitter'] LOOP
        most := CASE WHEN item = 'jitter' THEN 1 ELSE 1000000000 END;
        IF (retry ->> item)::numeric NOT BETWEEN 0 AND most THEN
            PERFORM /*schema*/refuse(
                field || '.retry.' || item, 'must be between 0 and ' || most, retry ->> item);
        ELSIF retry ? item THEN
            retry_tail := retry_tail || format(',"%s":%s', item, retry -> item);
        END IF;
    END LOOP;
    IF given ? 'timeout' THEN
        seconds := /*schema*/seconds_of(field || '.timeout', given -> 'timeout', 0.001, 86400);
        timeout_us := seconds * 1000000;
        tail := tail || ',"timeout":"PT' || trim_scale(seconds) || 'S"';
    END IF;
    IF given ? 'retention' THEN
        seconds := /*schema*/seconds_of(field || '.retention', given -> 'retention', 0, 31622400);
        retention_us := seconds * 1000000;
        tail := tail || ',"retention":"PT' || trim_scale(seconds) || 'S"';
    END IF;
    IF given ? 'deadline' THEN
        BEGIN
            ends := (given ->> 'deadline')::timestamptz;
        EXCEPTION WHEN data_exception THEN
            NULL;
        END;
        IF (ends > '1970-01-01Z' AND ends < '9000-01-01Z') IS NOT TRUE THEN
            PERFORM /*schema*/refuse(
                field || '.deadline', 'must be a time before the year 9000', given ->> 'deadline');
        END IF;
        tail := tail || ',"deadline":"' || to_char(ends AT TIME ZONE 'UTC', utc) || '"';
    END IF;
    queue := coalesce(given ->> 'queue', queue);
    IF queue !~ '^[A-Za-z0-9._-]{1,64}$' THEN
        PERFORM /*schema*/refuse(
            field || '.queue', 'must be 1 to 64 characters out of A-Z a-z 0-9 . _ -', queue);
    END IF;
    rank := coalesce((given ->> 'priority')::numeric, 5);
    IF rank NOT IN (0, 1, 2, 3, 4, 5, 6, 7, 8, 9) THEN
        PERFORM /*schema*/refuse(
            field || '.priority', 'must be a whole number from 0 to 9', rank::text);
    END IF;
    priority := rank;
    tail := tail || ',"queue":"' || queue || '","priority":' || priority;
    PERFORM /*schema*/check_texts(field || '.labels', labels);
    FOR item IN SELECT e.key FROM jsonb_each_text(labels) AS e
        WHERE e.key !~ '^[A-Za-z0-9._-]{1,64}$' OR length(e.value) > 256
           OR NOT /*schema*/is_printable(e.value, 1024)
    LOOP
        PERFORM /*schema*/refuse(
            field || '.labels', 'names of 1 to 64 plain characters, printable values up to 256', item);
    END LOOP;
    IF (SELECT count(*) FROM jsonb_object_keys(labels)) > 32 THEN
        PERFORM /*schema*/refuse(field || '.labels', 'must be at most 32', NULL);
    END IF;
    tail := tail || ',"labels":' || labels;
END
$$;

-- Say what is wrong with a task: the slow way, for a message. Returns if it finds nothing.
CREATE FUNCTION /*schema*/check_task(place text, task jsonb) RETURNS void
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    present timestamptz := clock_timestamp();
    name text := task ->> 'id';
    starts timestamptz;
    ends timestamptz;
BEGIN
    PERFORM /*schema*/check_fields(rtrim(place, '.'), task, '{
        "task_type": "string|null", "payload": "any", "execute_at": "string|null",
        "id": "string|null", "max_attempts": "number|null", "options": "object|null"}');
    IF name !~ '^[A-Za-z0-9._:@-]{1,200}$' OR name IN ('.', '..') THEN
        PERFORM /*schema*/refuse(
            place || 'id', 'must be 1 to 200 characters out of A-Z a-z 0-9 . _ : @ -', name);
    END IF;
    PERFORM /*schema*/check_payload(place, task ->> 'task_type', task -> 'payload');
    BEGIN
        starts := coalesce((task ->> 'execute_at')::timestamptz, present);
    EXCEPTION WHEN data_exception THEN
        PERFORM /*schema*/refuse(place || 'execute_at', 'must be a time', task ->> 'execute_at');
    END;
    IF starts >= '9000-01-01Z' OR starts < present - interval '10 minutes' AND starts <> now() THEN
        PERFORM /*schema*/refuse(
            place || 'execute_at',
            'must not be more than 10 minutes in the past, nor after the year 9000', starts::text);
    END IF;
    IF coalesce((task ->> 'max_attempts')::numeric, 3) NOT BETWEEN 1 AND 1000001
        OR (task ->> 'max_attempts')::numeric % 1 <> 0
    THEN
        PERFORM /*schema*/refuse(
            place || 'max_attempts', 'must be a whole number between 1 and 1000001',
            task ->> 'max_attempts');
    END IF;
    SELECT o.ends INTO ends
    FROM /*schema*/options_of(place, coalesce(nullif(task -> 'options', 'null'), '{}')) AS o;
    IF ends <= greatest(starts, present) THEN
        PERFORM /*schema*/refuse(
            place || 'options.deadline', 'must be to come, and after execute_at',
            task #>> '{options,deadline}');
    END IF;
END
$$;

-- A random id whose beginning is the time, as the program makes them (UUID version 7).
CREATE FUNCTION /*schema*/guid_head(time_ms bigint) RETURNS text
LANGUAGE sql IMMUTABLE AS $$
    SELECT lpad(to_hex(time_ms >> 16), 8, '0') || '-' || lpad(to_hex(time_ms & 65535), 4, '0') || '-7'
$$;

CREATE FUNCTION /*schema*/spec_text(
    kind text, payload_text text, starts timestamptz, max_attempts int, retry_tail text, tail text
) RETURNS text
LANGUAGE sql STABLE AS $$
    SELECT '{"action":{"type":"' || kind || '",' || substr(payload_text, 2)
        || ',"start_at":"' || to_char(starts AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')
        || '","retry":{"max":' || (max_attempts - 1) || retry_tail || '}' || tail || '}'
$$;

CREATE FUNCTION /*schema*/schedule(
    task_type text, payload jsonb, execute_at timestamptz DEFAULT NULL, id text DEFAULT NULL,
    max_attempts int DEFAULT 3, options jsonb DEFAULT '{}'
) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    present timestamptz := clock_timestamp();
    made uuid := (/*schema*/guid_head((extract(epoch FROM present) * 1000)::bigint)
        || substr(gen_random_uuid()::text, 16))::uuid;
    name text := coalesce(schedule.id, made::text);
    starts timestamptz := coalesce(schedule.execute_at, present);
    payload_text text := schedule.payload::text;
    o record;
    shard int := (/*schema*/shard_hash(name) % /*schema*/shard_count())::int;
BEGIN
    o := /*schema*/options_of('', coalesce(schedule.options, '{}'));
    IF /*schema*/task_fits(
        schedule.id, schedule.task_type, schedule.payload, payload_text, starts, present,
        schedule.max_attempts, o.ends
    ) IS NOT TRUE THEN
        PERFORM /*schema*/check_task('', jsonb_build_object(
            'task_type', schedule.task_type, 'payload', schedule.payload,
            'execute_at', schedule.execute_at, 'id', schedule.id,
            'max_attempts', coalesce(schedule.max_attempts, 0), 'options', schedule.options));
        PERFORM /*schema*/refuse('task', 'is not what the reference says', schedule.task_type);
    END IF;
    INSERT INTO /*schema*/scheduled_action (
        shard_id, id, guid, spec, state, queue, priority, timeout_us, retention_us, keyed,
        created_at, updated_at, scheduled_at, occurrence_no, occurrence_at, expires_at,
        attempts, succeeded, failed, interrupted,
        consecutive_failures, consecutive_interruptions, occurrence_failures, creator
    )
    VALUES (
        shard, name, made, /*schema*/spec_text(
            schedule.task_type, payload_text, starts, schedule.max_attempts, o.retry_tail, o.tail),
        'active', o.queue, o.priority, o.timeout_us, o.retention_us, false, present, present,
        starts, 1, starts, o.ends, 0, 0, 0, 0, 0, 0, 0, NULL
    )
    ON CONFLICT (shard_id, id) DO NOTHING;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'id: an action with this id exists already (got %)', name
            USING ERRCODE = '23505';
    END IF;
    INSERT INTO /*schema*/incoming_queue (shard_id, created_at, guid, queue, priority, scheduled_at)
    VALUES (shard, present, made, o.queue, o.priority, starts);
    INSERT INTO /*schema*/audit (at, guid, shard_id, count, verb, actor, id, face)
    VALUES (present, made, shard, 1, 'create', 'sql:' || session_user, name, 'sql');
    RETURN name;
END
$$;

-- Raise what is wrong with the first bad one of these tasks.
CREATE FUNCTION /*schema*/refuse_tasks(tasks jsonb[]) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    task jsonb;
    no int;
    name text;
    names text[] := ARRAY(
        SELECT e.task ->> 'id' FROM unnest(tasks) AS e (task) WHERE e.task ->> 'id' IS NOT NULL
    );
    shards int[] := ARRAY(
        SELECT (/*schema*/shard_hash(u.name) % /*schema*/shard_count())::int
        FROM unnest(names) AS u (name)
    );
    living text[];
BEGIN
    FOR task, no IN
        SELECT e.task, e.no - 1 FROM unnest(tasks) WITH ORDINALITY AS e (task, no)
    LOOP
        PERFORM /*schema*/check_task(format('tasks[%s].', no), task);
    END LOOP;
    living := ARRAY(
        SELECT a.id FROM /*schema*/scheduled_action AS a
        WHERE a.shard_id = ANY (shards) AND a.id = ANY (names)
    );
    SELECT u.no, u.id INTO no, name
    FROM (
        SELECT
            e.no - 1 AS no, e.task ->> 'id' AS id,
            row_number() OVER (PARTITION BY e.task ->> 'id' ORDER BY e.no) AS nth
        FROM unnest(tasks) WITH ORDINALITY AS e (task, no)
        WHERE e.task ->> 'id' IS NOT NULL
    ) AS u
    WHERE u.nth > 1 OR u.id = ANY (living)
    ORDER BY u.no
    LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'tasks[%].id: an action with this id exists already (got %)', no, name
            USING ERRCODE = '23505';
    END IF;
    PERFORM /*schema*/refuse('tasks', 'one is not what the reference says', NULL);
END
$$;

-- Many of one type at once, all or none: the arguments of `schedule`, of which payload, time and id
-- are arrays. The ids, in order. A guid is the time, its place among them (24 bits: an array has no
-- more) and 48 random bits that the call draws once: so the index grows at its end, and the order
-- need not be kept beside.
CREATE FUNCTION /*schema*/schedule_many(
    task_type text, payload jsonb[], execute_at timestamptz[] DEFAULT NULL, id text[] DEFAULT NULL,
    max_attempts int DEFAULT 3, options jsonb DEFAULT '{}'
) RETURNS SETOF text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET work_mem = '64MB'
SET jit = off AS $$
#variable_conflict use_column
DECLARE
    present timestamptz := clock_timestamp();
    head text := /*schema*/guid_head((extract(epoch FROM present) * 1000)::bigint);
    tail text := substr(gen_random_uuid()::text, 24);
    wanted int := cardinality(schedule_many.payload);
    o record;
    stored int;
BEGIN
    IF wanted IS NULL THEN
        PERFORM /*schema*/refuse('payload', 'must be an array of objects', NULL);
    ELSIF wanted <> cardinality(schedule_many.execute_at) THEN
        PERFORM /*schema*/refuse('execute_at', 'must be as many as there are payloads',
            cardinality(schedule_many.execute_at) || ', not ' || wanted);
    ELSIF wanted <> cardinality(schedule_many.id) THEN
        PERFORM /*schema*/refuse('id', 'must be as many as there are payloads',
            cardinality(schedule_many.id) || ', not ' || wanted);
    END IF;
    o := /*schema*/options_of('', coalesce(schedule_many.options, '{}'));
    BEGIN
        RETURN QUERY
        WITH stored AS (
            INSERT INTO /*schema*/scheduled_action (
                shard_id, id, guid, spec, state, queue, priority, timeout_us, retention_us, keyed,
                created_at, updated_at, scheduled_at, occurrence_no, occurrence_at, expires_at,
                attempts, succeeded, failed, interrupted,
                consecutive_failures, consecutive_interruptions, occurrence_failures, creator
            )
            SELECT
                (/*schema*/shard_hash(t.name) % /*schema*/shard_count())::int, t.name, t.guid,
                /*schema*/spec_text(
                    schedule_many.task_type, t.payload_text, t.starts, schedule_many.max_attempts,
                    o.retry_tail, o.tail),
                'active', o.queue, o.priority, o.timeout_us, o.retention_us, false, present, present,
                t.starts, 1, t.starts, o.ends, 0, 0, 0, 0, 0, 0, 0, NULL
            FROM (
                SELECT
                    n.guid, n.id, coalesce(n.id, n.guid::text) AS name, n.payload,
                    n.payload::text AS payload_text, coalesce(n.execute_at, present) AS starts
                FROM (
                    SELECT
                        e.payload, e.execute_at, e.id, (
                            head || overlay(lpad(to_hex(e.no), 6, '0') PLACING '-8' FROM 4 FOR 0)
                            || tail
                        )::uuid AS guid
                    FROM (
                        SELECT
                            generate_series(1, wanted) AS no,
                            unnest(schedule_many.payload) AS payload,
                            unnest(schedule_many.execute_at) AS execute_at,
                            unnest(schedule_many.id) AS id
                    ) AS e
                    OFFSET 0  -- so that each of these is computed once
                ) AS n
                OFFSET 0
            ) AS t
            WHERE /*schema*/task_fits(
                t.id, schedule_many.task_type, t.payload, t.payload_text, t.starts, present,
                schedule_many.max_attempts, o.ends
            )
            RETURNING shard_id, guid, queue, priority, scheduled_at, id
        ), announced AS (
            INSERT INTO /*schema*/incoming_queue
                (shard_id, created_at, guid, queue, priority, scheduled_at)
            SELECT s.shard_id, present, s.guid, s.queue, s.priority, s.scheduled_at
            FROM stored AS s
        ), audited AS (
            INSERT INTO /*schema*/audit (at, guid, shard_id, count, verb, actor, id, face)
            SELECT present, s.guid, s.shard_id, wanted, 'create', 'sql:' || session_user, s.id, 'sql'
            FROM (SELECT f.guid, f.shard_id, f.id FROM stored AS f ORDER BY f.guid LIMIT 1) AS s
        )
        SELECT s.id FROM stored AS s ORDER BY s.guid;
        GET DIAGNOSTICS stored = ROW_COUNT;
        IF stored = wanted THEN
            RETURN;
        END IF;
        RAISE data_exception;
    EXCEPTION WHEN data_exception OR unique_violation THEN
        NULL;  -- nothing of it is stored; what follows finds out why
    END;
    PERFORM /*schema*/refuse_tasks(ARRAY(
        SELECT jsonb_build_object(
            'task_type', schedule_many.task_type, 'payload', e.payload, 'execute_at', e.execute_at,
            'id', e.id, 'max_attempts', coalesce(schedule_many.max_attempts, 0),
            'options', schedule_many.options)
        FROM unnest(schedule_many.payload, schedule_many.execute_at, schedule_many.id)
            WITH ORDINALITY AS e (payload, execute_at, id, no)
        ORDER BY e.no
    ));
END
$$;

-- In a transaction that keeps one snapshot an attempt may have begun that it cannot see. Where the
-- row of the processing queue is visible, removing it fails then, as the isolation demands. Where it
-- is not, the row of the incoming queue is tried: it was begun or moved since. The lock is given
-- back at once, with what the inner block did: nobody may wait for it.
CREATE FUNCTION /*schema*/check_snapshot(p_shard int, p_guid uuid) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF current_setting('transaction_isolation') = 'read committed' THEN
        RETURN;
    END IF;
    BEGIN
        PERFORM 1 FROM /*schema*/incoming_queue AS i
        JOIN /*schema*/scheduled_action AS a ON a.shard_id = i.shard_id AND a.guid = i.guid
        WHERE i.shard_id = p_shard AND i.guid = p_guid AND i.created_at = a.updated_at
        FOR UPDATE OF i SKIP LOCKED;
        RAISE EXCEPTION 'undo' USING ERRCODE = 'GN002';
    EXCEPTION WHEN SQLSTATE 'GN002' THEN
        RETURN;
    END;
END
$$;

-- `running`: the attempt under way is asked to end, too.
CREATE FUNCTION /*schema*/cancel(id text, running boolean DEFAULT false) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    present timestamptz;
    shard int := (/*schema*/shard_hash(cancel.id) % /*schema*/shard_count())::int;
    made uuid;
    since timestamptz;
    flight int;
BEGIN
    SELECT a.guid, a.updated_at INTO made, since FROM /*schema*/scheduled_action AS a
    WHERE a.shard_id = shard AND a.id = cancel.id
    FOR UPDATE;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    -- After the lock: an attempt that began before it was granted is visible to these.
    present := clock_timestamp();
    INSERT INTO /*schema*/attempt_log (
        shard_id, id, guid, attempt_id, attempt_no, occurrence_no, began_at, outcome, owner
    )
    SELECT a.shard_id, a.id, a.guid, q.attempt_id, q.attempts, a.occurrence_no, q.began_at,
           CASE WHEN cancel.running THEN 'cancelling' ELSE 'superseded' END, q.owner
    FROM /*schema*/scheduled_action AS a
    CROSS JOIN (
        SELECT p.attempt_id, p.attempts, p.began_at, p.owner
        FROM /*schema*/processing_queue AS p
        WHERE p.guid = made AND p.shard_id = shard AND p.running
        UNION ALL
        SELECT i.attempt_id, 1, i.began_at, i.owner
        FROM /*schema*/incoming_queue AS i
        WHERE i.shard_id = shard AND i.created_at = since AND i.guid = made
          AND i.attempt_id IS NOT NULL
    ) AS q
    WHERE a.shard_id = shard AND a.id = cancel.id
    ON CONFLICT DO NOTHING
    RETURNING 1 INTO flight;
    flight := coalesce(flight, 0);
    PERFORM /*schema*/check_snapshot(shard, made);
    -- The same as change_drop_row in queries/actions.sql.
    DELETE FROM /*schema*/processing_queue AS q
    WHERE q.shard_id = shard AND q.ctid = ANY (ARRAY(
        SELECT p.ctid FROM /*schema*/processing_queue AS p
        WHERE p.guid = made AND p.shard_id = shard AND NOT p.running
        FOR UPDATE SKIP LOCKED
    ));
    INSERT INTO /*schema*/finished_action (
        shard_id, id, guid, spec, state, queue, priority, keyed, created_at, updated_at,
        occurrence_no, occurrence_at, attempts, succeeded, failed, interrupted,
        consecutive_failures, consecutive_interruptions, occurrence_failures,
        last_attempt, reason, finished_at, purge_at
    )
    SELECT
        a.shard_id, a.id, a.guid, a.spec, 'cancelled', a.queue, a.priority, a.keyed, a.created_at,
        present, a.occurrence_no, a.occurrence_at, a.attempts + flight, a.succeeded, a.failed,
        a.interrupted + flight, a.consecutive_failures, a.consecutive_interruptions,
        a.occurrence_failures, a.last_attempt, 'deleted', present,
        present + a.retention_us * interval '1 microsecond'
    FROM /*schema*/scheduled_action AS a
    WHERE a.shard_id = shard AND a.id = cancel.id AND a.retention_us > 0;
    DELETE FROM /*schema*/scheduled_action AS a WHERE a.shard_id = shard AND a.id = cancel.id;
    INSERT INTO /*schema*/audit (at, guid, shard_id, count, verb, actor, id, face)
    VALUES (present, made, shard, 1, 'delete', 'sql:' || session_user, cancel.id, 'sql');
    RETURN true;
END
$$;

CREATE VIEW /*schema*/tasks AS
SELECT
    a.id, a.occurrence_at AS execute_at, s.spec #>> '{action,type}' AS task_type,
    (s.spec -> 'action') - 'type' AS payload,
    CASE WHEN q.running OR i.guid IS NOT NULL THEN 'processing' ELSE 'pending' END AS status,
    coalesce(q.attempts, CASE WHEN i.guid IS NOT NULL THEN 1 ELSE a.attempts END) AS attempts,
    coalesce((s.spec #>> '{retry,max}')::int, 0) + 1 AS max_attempts,
    /*schema*/spec_json(a.last_attempt) ->> 'error' AS error_message,
    a.created_at, a.updated_at, NULL::timestamptz AS completed_at
FROM /*schema*/scheduled_action AS a
CROSS JOIN LATERAL (SELECT /*schema*/spec_json(a.spec) AS spec) AS s
LEFT JOIN /*schema*/processing_queue AS q ON q.guid = a.guid AND q.shard_id = a.shard_id
LEFT JOIN /*schema*/incoming_queue AS i
    ON i.shard_id = a.shard_id AND i.created_at = a.updated_at AND i.guid = a.guid
    AND i.attempt_id IS NOT NULL
UNION ALL
SELECT
    f.id, f.occurrence_at, s.spec #>> '{action,type}', (s.spec -> 'action') - 'type',
    CASE f.state WHEN 'done' THEN 'completed' WHEN 'cancelled' THEN 'cancelled' ELSE 'failed' END,
    f.attempts, coalesce((s.spec #>> '{retry,max}')::int, 0) + 1,
    CASE WHEN f.state <> 'done'
        THEN coalesce(/*schema*/spec_json(f.last_attempt) ->> 'error', f.reason) END,
    f.created_at, f.updated_at, f.finished_at
FROM /*schema*/finished_action AS f
CROSS JOIN LATERAL (SELECT /*schema*/spec_json(f.spec) AS spec) AS s
WHERE f.purge_at > statement_timestamp();

-- Called by the owner: let a role schedule, cancel and look, and nothing else.
CREATE FUNCTION /*schema*/grant_sql(role_name name) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    home name := (
        SELECT n.nspname FROM pg_namespace AS n
        JOIN pg_class AS c ON c.relnamespace = n.oid
        WHERE c.oid = '/*schema*/tasks'::regclass
    );
BEGIN
    EXECUTE format('GRANT USAGE ON SCHEMA %I TO %I', home, role_name);
    EXECUTE format('GRANT SELECT ON %I.tasks TO %I', home, role_name);
    EXECUTE format(
        'GRANT EXECUTE ON FUNCTION %1$I.schedule(text, jsonb, timestamptz, text, int, jsonb), '
        '%1$I.schedule_many(text, jsonb[], timestamptz[], text[], int, jsonb), '
        '%1$I.cancel(text, boolean), %1$I.spec_json(text) TO %2$I', home, role_name);
END
$$;

REVOKE ALL ON FUNCTION
    /*schema*/shard_hash(text), /*schema*/spec_json(text), /*schema*/refuse(text, text, text),
    /*schema*/check_fields(text, jsonb, jsonb), /*schema*/check_texts(text, jsonb),
    /*schema*/seconds_of(text, jsonb, numeric, numeric), /*schema*/is_printable(text, int),
    /*schema*/host_fits(text), /*schema*/headers_fit(text, jsonb), /*schema*/codes_fit(jsonb),
    /*schema*/payload_fits(text, jsonb, text),
    /*schema*/task_fits(
        text, text, jsonb, text, timestamptz, timestamptz, int, timestamptz),
    /*schema*/check_payload(text, text, jsonb), /*schema*/options_of(text, jsonb),
    /*schema*/check_task(text, jsonb), /*schema*/guid_head(bigint),
    /*schema*/spec_text(text, text, timestamptz, int, text, text),
    /*schema*/schedule(text, jsonb, timestamptz, text, int, jsonb), /*schema*/refuse_tasks(jsonb[]),
    /*schema*/schedule_many(text, jsonb[], timestamptz[], text[], int, jsonb),
    /*schema*/cancel(text, boolean), /*schema*/grant_sql(name)
FROM PUBLIC;

-- The last occurrence of an action whose SQL effect is committed, written by the effect's own
-- transaction: whoever attempts the occurrence again sees that it is done. The guid is the first one
-- of the series: the effect stays done when the action is paused and resumed.
CREATE TABLE /*schema*/sql_success (
    guid          uuid        NOT NULL,
    at            timestamptz NOT NULL,
    occurrence_no bigint      NOT NULL,
    shard_id      int         NOT NULL,
    CONSTRAINT sql_success_pkey PRIMARY KEY (guid, shard_id)
);

-- Which login may perform a target's statements here; filled by `gnomon target setup`.
CREATE TABLE /*schema*/target_login (
    target text COLLATE "C" NOT NULL,
    role   name NOT NULL,
    CONSTRAINT target_login_pkey PRIMARY KEY (target, role)
);

-- Called with the login of a SQL target, which has no right on any table here, and whose statements
-- are strangers'. An attempt id is no secret, so the login must be that of the action's own target:
-- no other may note its effect as done, nor hold its row. The row stays locked until the effect is
-- committed: no other attempt can begin before, and none that begins afterwards misses the note.
CREATE FUNCTION /*schema*/finish_ok(p_id text, p_guid uuid, p_attempt uuid, p_occurrence bigint)
RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_shard int := (/*schema*/shard_hash(p_id) % /*schema*/shard_count())::int;
    v_series uuid;
    v_spec jsonb;
BEGIN
    SELECT /*schema*/spec_json(a.spec) INTO v_spec
    FROM /*schema*/scheduled_action AS a
    WHERE a.shard_id = v_shard AND a.guid = p_guid AND a.occurrence_no = p_occurrence;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'stale attempt' USING ERRCODE = 'GN001';
    END IF;
    IF v_spec #>> '{action,type}' IS DISTINCT FROM 'sql' OR NOT EXISTS (
        SELECT 1 FROM /*schema*/target_login AS t
        WHERE t.target = v_spec #>> '{action,target}' AND t.role = session_user
    ) THEN
        RAISE EXCEPTION 'this login is not that of the action''s target: gnomon target setup'
            USING ERRCODE = '42501';
    END IF;
    -- First where it may have been begun: from there it may be moved on, never back.
    SELECT coalesce(a.series, a.guid) INTO v_series
    FROM /*schema*/scheduled_action AS a
    JOIN /*schema*/incoming_queue AS i
        ON i.shard_id = a.shard_id AND i.created_at = a.updated_at AND i.guid = a.guid
    WHERE a.shard_id = v_shard AND a.guid = p_guid AND i.attempt_id = p_attempt
    FOR UPDATE OF i;
    IF NOT FOUND THEN
        SELECT coalesce(a.series, a.guid) INTO v_series
        FROM /*schema*/processing_queue AS q
        JOIN /*schema*/scheduled_action AS a ON a.shard_id = q.shard_id AND a.guid = q.guid
        WHERE q.shard_id = v_shard AND q.guid = p_guid AND q.attempt_id = p_attempt
          AND (q.running OR q.swept)
        FOR UPDATE OF q;
    END IF;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'stale attempt' USING ERRCODE = 'GN001';
    END IF;
    -- Not VALUES: on Citus that row would be committed on its node before the effect is on this one,
    -- and a crash in between, or a commit that fails, would leave the note without the effect. Rows
    -- that are selected from a function are sent from here, and prepared there before either commit.
    INSERT INTO /*schema*/sql_success AS s (guid, at, occurrence_no, shard_id)
    SELECT v_series, statement_timestamp(), p_occurrence, v_shard FROM generate_series(1, 1)
    ON CONFLICT (guid, shard_id) DO UPDATE
    SET at = excluded.at, occurrence_no = excluded.occurrence_no;
END
$$;

CREATE FUNCTION /*schema*/effect_done(p_id text, p_guid uuid, p_occurrence bigint) RETURNS boolean
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_shard int := (/*schema*/shard_hash(p_id) % /*schema*/shard_count())::int;
BEGIN
    RETURN EXISTS (
        SELECT 1 FROM /*schema*/scheduled_action AS a
        JOIN /*schema*/sql_success AS s
            ON s.shard_id = a.shard_id AND s.guid = coalesce(a.series, a.guid)
        WHERE a.shard_id = v_shard AND a.guid = p_guid AND s.occurrence_no = p_occurrence
    );
END
$$;

REVOKE ALL ON FUNCTION /*schema*/finish_ok(text, uuid, uuid, bigint) FROM PUBLIC;
REVOKE ALL ON FUNCTION /*schema*/effect_done(text, uuid, bigint) FROM PUBLIC;
