-- The schema of distlock in Postgres: leases, waiters, and functions. distlock calls only these functions.
-- You can run this file any number of times: it keeps all data. A manager runs it when it connects and finds no
-- functions, or older ones. If its role lacks the privileges, an operator runs the file. The role then needs USAGE on
-- the schema, EXECUTE on the functions, and SELECT, INSERT, UPDATE, DELETE on the tables and the sequence:
--   GRANT USAGE ON SCHEMA distlock TO app;
--   GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA distlock TO app;
--   GRANT ALL ON ALL SEQUENCES IN SCHEMA distlock TO app;
--
-- Each function is one short transaction. A function that can change the holders of a lock takes an advisory lock on
-- the name of that lock. So it sees what the function before it has committed. Times are in µs since 1970 by the
-- server's clock, read while the function runs. Durations are in ms.
--
-- The functions write everything but queries as expressions, because PERFORM and SELECT start an executor each time,
-- which costs more than most of the work here. `v_done := … IS NULL` makes an expression of a function that returns
-- nothing.
--
-- Only a grant, a renewal and a release that keeps the lease wait for the disk. A crash of the server may lose the last
-- releases and entries into the queue. Others then wait until a lease ends or a waiter polls. A crash never loses what a
-- grant relies on: the commit of a grant also writes all earlier commits to disk.
--
-- The functions find rows by plain index scans only. If nearly every row of a table is dead, the planner takes the table
-- for empty or for large. Only a plain index scan marks dead entries for later scans. With a bitmap scan each call on a
-- busy lock would read all rows that were deleted since the last vacuum.
--
-- That does not help while any session of the database has an old snapshot (a dump, a report, a forgotten transaction),
-- because Postgres keeps the dead rows that the snapshot might see. So each row has a `seq`, the time when it was
-- inserted, and each lock has a floor: all rows below it are dead. Now and then an entry into the queue raises the floor
-- and gives the live rows a new `seq`. The functions look up rows by lock from its floor on, or by token. Both lookups
-- meet few dead rows.

CREATE SCHEMA IF NOT EXISTS distlock;

-- The holders of locks, one row for each token. `most` is the number of holders that the lock may have with this one:
-- 1 holds it exclusively, 2147483647 allows any number. A row whose time is over counts for nothing.
CREATE TABLE IF NOT EXISTS distlock.lease (
    name text COLLATE "C" NOT NULL,
    token text COLLATE "C" NOT NULL,
    most integer NOT NULL,
    until bigint NOT NULL,
    PRIMARY KEY (token, name)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);

-- The waiters, by ticket. `claim` is the length of a reservation for the waiter. `told` means that it is sent messages.
CREATE TABLE IF NOT EXISTS distlock.waiter (
    name text COLLATE "C" NOT NULL,
    ticket bigint NOT NULL,
    token text COLLATE "C" NOT NULL,
    most integer NOT NULL,
    claim integer NOT NULL,
    told boolean NOT NULL,
    until bigint NOT NULL,
    PRIMARY KEY (token, name)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);

-- Rows that an older version inserted are above every floor.
ALTER TABLE distlock.lease ADD COLUMN IF NOT EXISTS seq bigint NOT NULL DEFAULT 9223372036854775807;
ALTER TABLE distlock.waiter ADD COLUMN IF NOT EXISTS seq bigint NOT NULL DEFAULT 9223372036854775807;
CREATE INDEX IF NOT EXISTS lease_live ON distlock.lease (name, seq);
CREATE INDEX IF NOT EXISTS waiter_live ON distlock.waiter (name, seq);

-- The floors of locks. The newest row of a lock is alive. A lock without a row has the floor 0.
CREATE TABLE IF NOT EXISTS distlock.floor (
    name text COLLATE "C" NOT NULL,
    seq bigint NOT NULL,
    PRIMARY KEY (name, seq)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);

-- The records of processes, for operators: the prefix of the process, and the time at which its record expires.
CREATE TABLE IF NOT EXISTS distlock.process (
    prefix text COLLATE "C" NOT NULL,
    process text COLLATE "C" NOT NULL,
    record text NOT NULL,
    until bigint NOT NULL,
    PRIMARY KEY (prefix, process)
);

-- The sequence of fencing tokens and tickets. It never goes back, because values are drawn under a shared lock and the
-- sequence is raised under an exclusive one.
CREATE SEQUENCE IF NOT EXISTS distlock.fence AS bigint;

CREATE OR REPLACE FUNCTION distlock.now() RETURNS bigint LANGUAGE sql VOLATILE AS
    'SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint';

-- The time at which the lock was granted to the token or reserved for it.
ALTER TABLE distlock.lease ADD COLUMN IF NOT EXISTS since bigint NOT NULL DEFAULT distlock.now();

-- The start time of this server. It differs on another server, as after a failover behind a proxy.
CREATE OR REPLACE FUNCTION distlock.started() RETURNS bigint LANGUAGE sql STABLE AS
    'SELECT (extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint';

CREATE OR REPLACE FUNCTION distlock.draw() RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    v_done boolean;
BEGIN
    v_done := pg_advisory_xact_lock_shared(7233187398472430593) IS NULL;
    RETURN nextval('distlock.fence');
END $$;

-- Raises the sequence to the clock and to the highest value that a client has seen. Returns the sequence, the time, and
-- the start time of the server.
CREATE OR REPLACE FUNCTION distlock.raise(p_least bigint) RETURNS bigint[] LANGUAGE plpgsql AS $$
DECLARE
    v_last bigint;
    v_now bigint;
    v_floor bigint;
BEGIN
    -- The first grant that draws a value writes this to disk, too. A server that has lost it has restarted, which
    -- `started` shows.
    PERFORM distlock.relax();
    PERFORM pg_advisory_xact_lock(7233187398472430593);
    SELECT last_value INTO v_last FROM distlock.fence;
    v_now := distlock.now();
    v_floor := greatest(v_last, v_now, p_least);
    IF v_floor > v_last THEN
        PERFORM setval('distlock.fence', v_floor);
    END IF;
    RETURN ARRAY[v_floor, v_now, distlock.started()];
END $$;

-- Prevents all others from changing the holders of this lock until the transaction ends. Returns the time.
CREATE OR REPLACE FUNCTION distlock.enter_lock(p_name text) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    v_done boolean;
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'distlock needs transactions that see what was committed before each statement'
            USING HINT = 'ALTER ROLE … SET default_transaction_isolation = ''read committed''';
    END IF;
    v_done := pg_advisory_xact_lock(hashtextextended(p_name, 7233187398472430594)) IS NULL;
    RETURN distlock.now();
END $$;

CREATE OR REPLACE FUNCTION distlock.floor(p_name text) RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
    RETURN coalesce((SELECT seq FROM distlock.floor WHERE name = p_name ORDER BY seq DESC LIMIT 1), 0);
END $$;

-- Raises the floor of a lock, and returns it. Gives live rows a new `seq` in the order of their tokens, because renewals
-- lock rows in that order. If there are very many rows, the oldest one becomes the floor.
CREATE OR REPLACE FUNCTION distlock.raise_floor(p_name text, p_floor bigint, p_now bigint) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    v_rows bigint;
    v_least bigint;
    v_floor bigint := greatest(p_now, p_floor + 1);
    v_token text;
BEGIN
    SELECT count(*), min(seq) INTO v_rows, v_least FROM (
        SELECT seq FROM distlock.lease WHERE name = p_name AND seq >= p_floor
        UNION ALL SELECT seq FROM distlock.waiter WHERE name = p_name AND seq >= p_floor) AS live;
    IF v_rows > 64 THEN
        v_floor := v_least;
    ELSIF v_rows > 0 THEN
        FOR v_token IN SELECT token FROM distlock.lease
            WHERE name = p_name AND seq >= p_floor AND seq < v_floor ORDER BY token LOOP
            UPDATE distlock.lease SET seq = v_floor WHERE name = p_name AND token = v_token;
        END LOOP;
        FOR v_token IN SELECT token FROM distlock.waiter
            WHERE name = p_name AND seq >= p_floor AND seq < v_floor ORDER BY token LOOP
            UPDATE distlock.waiter SET seq = v_floor WHERE name = p_name AND token = v_token;
        END LOOP;
    END IF;
    IF v_floor <= p_floor THEN
        RETURN p_floor;
    END IF;
    INSERT INTO distlock.floor (name, seq) VALUES (p_name, v_floor) ON CONFLICT DO NOTHING;
    DELETE FROM distlock.floor WHERE name = p_name AND seq = p_floor;
    RETURN v_floor;
END $$;

-- Makes the commit of this transaction not wait for the disk.
CREATE OR REPLACE FUNCTION distlock.relax() RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    RETURN set_config('synchronous_commit', 'off', true) IS NOT NULL;
END $$;

-- Sends a message on the channel of the process that a token belongs to. If the server has no room for more messages,
-- the client sets `distlock.quiet` and calls again. Nothing is lost, because waiters also poll.
CREATE OR REPLACE FUNCTION distlock.tell(p_kind text, p_token text, p_name text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    v_done boolean;
BEGIN
    IF current_setting('distlock.quiet', true) = 'on' THEN
        RETURN;
    END IF;
    v_done := pg_notify('distlock_' || split_part(p_token, '.', 1), p_kind || ' ' || p_token || ' ' || p_name) IS NULL;
END $$;

-- Returns whether the process of a token listens. A session that listens holds this lock.
CREATE OR REPLACE FUNCTION distlock.listens(p_token text) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    RETURN NOT pg_try_advisory_xact_lock(hashtextextended(split_part(p_token, '.', 1), 7233187398472430595));
END $$;

-- Sends texts to processes, and returns whether each of them listens. Does not send a text that is too long for a
-- message.
CREATE OR REPLACE FUNCTION distlock.send(p_processes text[], p_texts text[]) RETURNS boolean[] LANGUAGE plpgsql AS $$
DECLARE
    v_heard boolean[] := '{}';
BEGIN
    FOR n IN 1 .. coalesce(cardinality(p_processes), 0) LOOP
        IF octet_length(p_texts[n]) < 8000 THEN
            PERFORM pg_notify('distlock_' || p_processes[n], p_texts[n]);
            v_heard := v_heard || distlock.listens(p_processes[n]);
        ELSE
            v_heard := v_heard || false;
        END IF;
    END LOOP;
    RETURN v_heard;
END $$;

-- Returns the number of holders, 2147483647 if one holds the lock exclusively, and the end of the last lease. Deletes
-- leases that are over, even if their renewal is under way. So each lease that exists after this call counts.
CREATE OR REPLACE FUNCTION distlock.holders(p_name text, p_floor bigint, p_now bigint) RETURNS bigint[] LANGUAGE plpgsql AS $$
DECLARE
    v_holders bigint;
    v_ends bigint;
    v_over boolean;
    v_token text;
BEGIN
    LOOP
        SELECT CASE WHEN bool_or(most = 1) THEN 2147483647 ELSE count(*) END, max(until), bool_or(until <= p_now)
            INTO v_holders, v_ends, v_over FROM distlock.lease WHERE name = p_name AND seq >= p_floor;
        IF v_over IS NOT TRUE THEN
            RETURN ARRAY[v_holders, v_ends];
        END IF;
        -- Renewals lock rows in this order.
        FOR v_token IN SELECT token FROM distlock.lease
            WHERE name = p_name AND seq >= p_floor AND until <= p_now ORDER BY token LOOP
            DELETE FROM distlock.lease WHERE name = p_name AND token = v_token AND until <= p_now;
        END LOOP;
    END LOOP;
END $$;

CREATE OR REPLACE FUNCTION distlock.hold(
    p_name text, p_floor bigint, p_token text, p_most integer, p_until bigint, p_now bigint
) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO distlock.lease AS l (name, token, most, until, since, seq)
        VALUES (p_name, p_token, p_most, p_until, p_now, greatest(p_now, p_floor))
        ON CONFLICT (name, token) DO UPDATE SET until = greatest(l.until, excluded.until);
END $$;

-- Lets in the waiters at the head of the queue, as many as the lock has room for. `p_token` gets a lease of `p_ttl`. Each
-- other one gets a reservation of the length of its claim. Removes dead waiters. Returns the tokens that were let in.
CREATE OR REPLACE FUNCTION distlock.admit(p_name text, p_floor bigint, p_token text, p_ttl bigint, p_now bigint)
RETURNS text[] LANGUAGE plpgsql AS $$
DECLARE
    w distlock.waiter;
    v_holders bigint := (distlock.holders(p_name, p_floor, p_now))[1];
    v_let_in text[] := '{}';
    v_done boolean;
BEGIN
    FOR w IN SELECT * FROM distlock.waiter WHERE name = p_name AND seq >= p_floor ORDER BY ticket, token LOOP
        IF w.token IS DISTINCT FROM p_token
            AND (w.until <= p_now OR w.told AND NOT distlock.listens(w.token)) THEN
            DELETE FROM distlock.waiter WHERE name = p_name AND token = w.token;
            CONTINUE;
        END IF;
        EXIT WHEN v_holders >= w.most;
        DELETE FROM distlock.waiter WHERE name = p_name AND token = w.token;
        IF w.token = p_token THEN
            v_done := distlock.hold(p_name, p_floor, w.token, w.most, p_now + p_ttl * 1000, p_now) IS NULL;
        ELSE
            v_done := distlock.hold(p_name, p_floor, w.token, w.most, p_now + w.claim * 1000, p_now) IS NULL;
            v_done := distlock.tell('g', w.token, p_name) IS NULL;
        END IF;
        v_let_in := v_let_in || w.token;
        v_holders := CASE w.most WHEN 1 THEN 2147483647 ELSE v_holders + 1 END;
    END LOOP;
    RETURN v_let_in;
END $$;

-- Returns the ms until there is room for one more holder, if no holder releases or renews. Returns -1 for a free lock.
CREATE OR REPLACE FUNCTION distlock.remaining(p_name text, p_floor bigint, p_most integer, p_now bigint)
RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    v_ends bigint[];
    v_holders integer;
BEGIN
    SELECT array_agg(until ORDER BY until) INTO v_ends FROM distlock.lease WHERE name = p_name AND seq >= p_floor;
    v_holders := coalesce(cardinality(v_ends), 0);
    IF v_holders = 0 THEN
        RETURN -1;
    ELSIF p_most > 1 AND v_holders >= p_most THEN
        RETURN greatest((v_ends[v_holders - p_most + 1] - p_now) / 1000, 0);
    END IF;
    RETURN greatest((v_ends[v_holders] - p_now) / 1000, 0);
END $$;

-- Notifies those before a waiter that another process waits: the holders, if the waiter is the first in the queue, or
-- else the waiter directly before it.
CREATE OR REPLACE FUNCTION distlock.tell_in_front(
    p_name text, p_floor bigint, p_token text, p_ticket bigint, p_reads boolean, p_first boolean, p_in_front text
) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    v_token text;
    v_done boolean;
BEGIN
    IF p_first THEN
        FOR v_token IN SELECT token FROM distlock.lease WHERE name = p_name AND seq >= p_floor LOOP
            v_done := distlock.tell('s', v_token, p_name) IS NULL;
        END LOOP;
    ELSIF p_in_front NOT LIKE '%r' THEN
        v_done := distlock.tell('s', p_in_front, p_name) IS NULL;
    ELSIF NOT p_reads THEN
        -- Consecutive readers are let in together. Notify all of them, because other readers could go on joining them.
        FOR v_token IN SELECT token FROM distlock.waiter
            WHERE name = p_name AND seq >= p_floor AND (ticket, token) < (p_ticket, p_token)
            ORDER BY ticket DESC, token DESC LOOP
            EXIT WHEN v_token NOT LIKE '%r';
            v_done := distlock.tell('s', v_token, p_name) IS NULL;
        END LOOP;
    END IF;
END $$;

-- Prepares a grant. Returns {0, time}, or the answer that `acquire` gives instead.
CREATE OR REPLACE FUNCTION distlock.before_grant(p_name text, p_not_after bigint, p_started bigint, p_async boolean)
RETURNS bigint[] LANGUAGE plpgsql AS $$
DECLARE
    v_now bigint;
    v_done boolean;
BEGIN
    IF p_async THEN
        v_done := distlock.relax();
    END IF;
    IF distlock.started() <> p_started THEN
        RETURN ARRAY[4];
    END IF;
    v_now := distlock.enter_lock(p_name);
    RETURN ARRAY[CASE WHEN p_not_after <> 0 AND v_now > p_not_after THEN 3 ELSE 0 END, v_now];
END $$;

-- Acquires a free lock, confirms a reserved one, or enqueues the token. A waiter polls with this function, too. With
-- `p_try` it acquires the lock or leaves no trace. It is idempotent. It does nothing after `p_not_after`, unless that is
-- 0, and nothing on a server that was not started at `p_started`. Returns {1, fence, others wait},
-- {0, ticket, remaining, waiters before, waiters after, added}, {3, time} if it is late, or {4} on another server.
CREATE OR REPLACE FUNCTION distlock.acquire(
    p_name text, p_token text, p_most integer, p_ttl bigint, p_ticket bigint, p_claim integer, p_told boolean,
    p_try boolean, p_not_after bigint, p_started bigint, p_async boolean
) RETURNS bigint[] LANGUAGE plpgsql
    SET enable_seqscan = off SET enable_bitmapscan = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    v_before bigint[] := distlock.before_grant(p_name, p_not_after, p_started, p_async);
    v_now bigint := v_before[2];
    v_floor bigint;
    v_holders bigint[];
    v_remaining bigint;
    v_ticket bigint := p_ticket;
    v_stands bigint;
    v_added boolean;
    v_let_in text[];
    v_front bigint;
    v_behind bigint;
    v_done boolean;
BEGIN
    IF v_before[1] <> 0 THEN
        RETURN v_before;
    END IF;
    SELECT seq INTO v_floor FROM distlock.floor WHERE name = p_name ORDER BY seq DESC LIMIT 1;
    v_floor := coalesce(v_floor, 0);
    -- This is nearly random, and rare enough that most locks that are acquired only once leave no floor.
    IF v_now % 64 = 0 AND p_ticket = 0 THEN
        v_floor := distlock.raise_floor(p_name, v_floor, v_now);
    END IF;
    IF p_try THEN
        -- Most locks are free.
        INSERT INTO distlock.lease (name, token, most, until, since, seq)
            SELECT p_name, p_token, p_most, v_now + p_ttl * 1000, v_now, greatest(v_now, v_floor)
            WHERE NOT EXISTS (SELECT FROM distlock.lease WHERE name = p_name AND seq >= v_floor)
                AND NOT EXISTS (SELECT FROM distlock.waiter WHERE name = p_name AND seq >= v_floor);
        IF FOUND THEN
            RETURN ARRAY[1, distlock.draw(), 0];
        END IF;
    END IF;
    -- The token has a reservation, or was granted the lock before. It does not wait then.
    UPDATE distlock.lease SET until = greatest(until, v_now + p_ttl * 1000)
        WHERE name = p_name AND token = p_token AND until > v_now;
    IF FOUND THEN
        RETURN ARRAY[1, distlock.draw(), (EXISTS (SELECT FROM distlock.waiter WHERE name = p_name AND seq >= v_floor))::int];
    END IF;
    v_holders := distlock.holders(p_name, v_floor, v_now);
    -- An exclusive holder keeps all others out.
    IF v_holders[1] < 2147483647 THEN
        IF p_try AND EXISTS (SELECT FROM distlock.waiter WHERE name = p_name AND seq >= v_floor) THEN
            IF distlock.admit(p_name, v_floor, NULL, NULL, v_now) <> '{}' THEN
                v_done := distlock.announce_since(p_name, v_floor, 0) IS NULL;
            END IF;
            v_holders := distlock.holders(p_name, v_floor, v_now);
        END IF;
        IF v_holders[1] < p_most AND NOT EXISTS (SELECT FROM distlock.waiter WHERE name = p_name AND seq >= v_floor) THEN
            v_done := distlock.hold(p_name, v_floor, p_token, p_most, v_now + p_ttl * 1000, v_now) IS NULL;
            RETURN ARRAY[1, distlock.draw(), 0];
        END IF;
    END IF;
    IF NOT p_try THEN
        IF v_ticket = 0 THEN
            v_ticket := distlock.draw();
        END IF;
        -- A poll writes nothing unless the last write was a while ago.
        IF p_ticket <> 0 THEN
            SELECT ticket, false INTO v_stands, v_added FROM distlock.waiter
                WHERE name = p_name AND token = p_token AND until > v_now + 18000000;
        END IF;
        IF v_stands IS NULL THEN
            INSERT INTO distlock.waiter AS w (name, ticket, token, most, claim, told, until, seq)
                VALUES (p_name, v_ticket, p_token, p_most, p_claim, p_told, v_now + 20000000, greatest(v_now, v_floor))
                ON CONFLICT (name, token) DO UPDATE SET until = excluded.until
                RETURNING ticket, xmax = 0 INTO v_stands, v_added;
        END IF;
        v_ticket := v_stands;
        IF v_holders[1] < 2147483647 THEN
            v_let_in := distlock.admit(p_name, v_floor, p_token, p_ttl, v_now);
            IF v_let_in <> '{}' THEN
                v_done := distlock.announce_since(p_name, v_floor, 0) IS NULL;
            END IF;
            IF p_token = ANY (v_let_in) THEN
                RETURN ARRAY[1, distlock.draw(), (EXISTS (SELECT FROM distlock.waiter WHERE name = p_name AND seq >= v_floor))::int];
            END IF;
        END IF;
    END IF;
    -- A crash may lose the place in the queue, because the next poll restores it.
    v_done := distlock.relax();
    v_remaining := CASE v_holders[1] WHEN 2147483647 THEN (v_holders[2] - v_now) / 1000
        ELSE distlock.remaining(p_name, v_floor, p_most, v_now) END;
    IF p_try THEN
        RETURN ARRAY[0, 0, v_remaining, 0, 0, 0];
    END IF;
    SELECT count(*) FILTER (WHERE (ticket, token) < (v_ticket, p_token)),
        -- More readers may join a reader that only readers wait behind, so those do not count.
        count(*) FILTER (WHERE (ticket, token) > (v_ticket, p_token) AND NOT (p_most = 2147483647 AND most = 2147483647))
        INTO v_front, v_behind FROM distlock.waiter WHERE name = p_name AND seq >= v_floor;
    -- Notify shared holders, because others would go on joining them. An exclusive holder, or the waiter before this one,
    -- is notified later: each message wakes all sessions of the database that listen, and the next release sends one
    -- anyway.
    IF v_front = 0 AND v_holders[1] < 2147483647 THEN
        v_done := distlock.tell_in_front(p_name, v_floor, p_token, v_ticket, p_most = 2147483647, true, NULL) IS NULL;
    END IF;
    RETURN ARRAY[0, v_ticket, v_remaining, v_front, v_behind, v_added::int];
END $$;

-- For each waiter that entered the queue after that time, notifies the waiter before it. The first waiter has none before
-- it: the holder learns of it with its grant.
CREATE OR REPLACE FUNCTION distlock.announce_since(p_name text, p_floor bigint, p_since bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    v_in_front text;
    v_done boolean;
BEGIN
    FOR v_in_front IN SELECT in_front FROM (
            SELECT token, until, lag(token) OVER (ORDER BY ticket, token) AS in_front FROM distlock.waiter
                WHERE name = p_name AND seq >= p_floor
        ) AS w WHERE until > p_since + 20000000 AND in_front NOT LIKE '%r'
            AND split_part(in_front, '.', 1) <> split_part(token, '.', 1) LOOP
        v_done := distlock.tell('s', v_in_front, p_name) IS NULL;
    END LOOP;
END $$;

-- Does the same for one token that has waited for a while, if the lock was handed over to nobody since.
CREATE OR REPLACE FUNCTION distlock.announce(p_name text, p_token text) RETURNS void LANGUAGE plpgsql
    SET enable_seqscan = off SET enable_bitmapscan = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    w distlock.waiter;
    v_in_front text;
    v_floor bigint := distlock.floor(p_name);
    v_done boolean := distlock.relax();
BEGIN
    SELECT * INTO w FROM distlock.waiter WHERE name = p_name AND token = p_token;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    SELECT token INTO v_in_front FROM distlock.waiter
        WHERE name = p_name AND seq >= v_floor AND (ticket, token) < (w.ticket, p_token)
        ORDER BY ticket DESC, token DESC LIMIT 1;
    IF split_part(v_in_front, '.', 1) = split_part(p_token, '.', 1) OR coalesce(v_in_front, '') NOT LIKE '%r'
        AND EXISTS (SELECT FROM distlock.lease WHERE name = p_name AND seq >= v_floor AND since + 20000000 > w.until) THEN
        RETURN;
    END IF;
    v_done := distlock.tell_in_front(p_name, v_floor, p_token, w.ticket, w.most = 2147483647, v_in_front IS NULL, v_in_front) IS NULL;
END $$;

-- Releases the lock and hands it over, or leaves the queue. It also compensates for an acquire with an unknown outcome,
-- and repairs a queue. It is idempotent. Returns the state (0 not this token's, 1 released, 2 kept, 3 kept with others
-- waiting) and the tokens that were let in.
CREATE OR REPLACE FUNCTION distlock.release(p_name text, p_token text, p_keep bigint, p_async boolean, OUT state integer, OUT next text[])
LANGUAGE plpgsql
    SET enable_seqscan = off SET enable_bitmapscan = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    v_now bigint := distlock.enter_lock(p_name);
    v_floor bigint;
    v_until bigint;
    v_since bigint;
    v_waits integer;
    v_ends bigint[];
    w distlock.waiter;
    v_done boolean;
BEGIN
    -- If a crash loses the release, the lock stays held until its lease ends.
    IF p_async OR p_keep IS NULL THEN
        v_done := distlock.relax();
    END IF;
    next := '{}';
    IF p_keep IS NULL THEN
        DELETE FROM distlock.lease WHERE name = p_name AND token = p_token RETURNING until, since INTO v_until, v_since;
    ELSE
        SELECT until INTO v_until FROM distlock.lease WHERE name = p_name AND token = p_token;
    END IF;
    state := coalesce(v_until > v_now, false)::int;
    IF p_keep IS NOT NULL THEN
        v_floor := distlock.floor(p_name);
    END IF;
    IF state = 0 THEN
        v_until := NULL;
        DELETE FROM distlock.waiter WHERE name = p_name AND token = p_token;
    ELSIF p_keep IS NOT NULL THEN
        v_waits := (EXISTS (SELECT FROM distlock.waiter WHERE name = p_name AND seq >= v_floor))::int;
        state := 2 + v_waits;
        -- The end of a lease wakes no waiter. So the process also releases the lease, a little before its end.
        UPDATE distlock.lease SET until = v_now + (p_keep + 100 * v_waits) * 1000
            WHERE name = p_name AND token = p_token;
    END IF;
    IF NOT EXISTS (SELECT FROM distlock.waiter WHERE name = p_name AND seq >= coalesce(
        (SELECT seq FROM distlock.floor WHERE name = p_name ORDER BY seq DESC LIMIT 1), 0)) THEN
        RETURN;
    END IF;
    v_floor := distlock.floor(p_name);
    next := distlock.admit(p_name, v_floor, NULL, NULL, v_now);
    IF next <> '{}' THEN
        -- All sessions that listen wake up once, for one message or for several.
        v_done := distlock.announce_since(p_name, v_floor, coalesce(v_since, 0)) IS NULL;
    ELSIF v_until IS NOT NULL THEN
        -- The first waiter may know a later end than the one that counts now, so it must poll again. It need not if
        -- another one was let in before it: that reservation ends first, and its own process confirms or releases it.
        SELECT * INTO w FROM distlock.waiter WHERE name = p_name AND seq >= v_floor ORDER BY ticket, token LIMIT 1;
        SELECT array_agg(until ORDER BY until) INTO v_ends FROM distlock.lease WHERE name = p_name AND seq >= v_floor;
        IF w.most <= cardinality(v_ends) AND v_ends[cardinality(v_ends) - w.most + 1] < v_until THEN
            v_done := distlock.tell('g', w.token, p_name) IS NULL;
        END IF;
    END IF;
END $$;

-- Renews leases that are not over. Never creates or shortens a lease. Returns one row for each lease, in the order of the
-- arguments: 0 not this token's, 1 renewed, 2 renewed with others waiting, and a value of the sequence for those that
-- want one. It changes no turn, so it needs no lock on the names. It locks the rows in the same order as all functions.
CREATE OR REPLACE FUNCTION distlock.renew(p_names text[], p_tokens text[], p_ttls bigint[], p_draws boolean[], p_async boolean)
RETURNS TABLE (state integer, fence bigint) LANGUAGE plpgsql
    SET enable_seqscan = off SET enable_bitmapscan = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    v_states integer[] := array_fill(0, ARRAY[cardinality(p_names)]);
    v_fences bigint[] := array_fill(0::bigint, ARRAY[cardinality(p_names)]);
    v_at integer;
    v_now bigint;
    v_done boolean;
BEGIN
    IF p_async THEN
        v_done := distlock.relax();
    END IF;
    FOR v_at IN SELECT n FROM generate_subscripts(p_names, 1) n ORDER BY p_names[n], p_tokens[n] LOOP
        v_now := distlock.now();
        UPDATE distlock.lease SET until = greatest(until, v_now + p_ttls[v_at] * 1000)
            WHERE name = p_names[v_at] AND token = p_tokens[v_at] AND until > v_now;
        IF FOUND THEN
            v_states[v_at] := 1 + (EXISTS (SELECT FROM distlock.waiter
                WHERE name = p_names[v_at] AND seq >= distlock.floor(p_names[v_at])))::int;
            IF p_draws[v_at] THEN
                v_fences[v_at] := distlock.draw();
            END IF;
        END IF;
    END LOOP;
    RETURN QUERY SELECT s, f FROM unnest(v_states, v_fences) WITH ORDINALITY AS u (s, f, n) ORDER BY n;
END $$;

-- Gives a lock from a token that holds it exclusively to one that shares it, with no holder in between. It is idempotent.
-- Returns the answers of `acquire`, or {0} if the old token did not hold the lock.
CREATE OR REPLACE FUNCTION distlock.downgrade(
    p_name text, p_new text, p_most integer, p_ttl bigint, p_old text, p_not_after bigint, p_started bigint, p_async boolean
) RETURNS bigint[] LANGUAGE plpgsql
    SET enable_seqscan = off SET enable_bitmapscan = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    v_before bigint[] := distlock.before_grant(p_name, p_not_after, p_started, p_async);
    v_now bigint := v_before[2];
    v_floor bigint;
    v_done boolean;
BEGIN
    IF v_before[1] <> 0 THEN
        RETURN v_before;
    END IF;
    v_floor := distlock.floor(p_name);
    v_done := distlock.holders(p_name, v_floor, v_now) IS NULL;
    DELETE FROM distlock.lease WHERE name = p_name AND token = p_old;
    IF NOT FOUND AND NOT EXISTS (SELECT FROM distlock.lease WHERE name = p_name AND token = p_new) THEN
        RETURN ARRAY[0];
    END IF;
    v_done := distlock.hold(p_name, v_floor, p_new, p_most, v_now + p_ttl * 1000, v_now) IS NULL;
    IF distlock.admit(p_name, v_floor, NULL, NULL, v_now) <> '{}' THEN
        v_done := distlock.announce_since(p_name, v_floor, 0) IS NULL;
    END IF;
    RETURN ARRAY[1, distlock.draw(), (EXISTS (SELECT FROM distlock.waiter WHERE name = p_name AND seq >= v_floor))::int];
END $$;

-- Returns the holders and waiters of a lock, in order, with the remaining ms of each holder and null for a waiter.
CREATE OR REPLACE FUNCTION distlock.inspect(p_name text)
RETURNS TABLE (token text, remaining bigint) LANGUAGE plpgsql AS $$
DECLARE
    v_now bigint := distlock.now();
    v_floor bigint := distlock.floor(p_name);
BEGIN
    RETURN QUERY SELECT l.token, (l.until - v_now) / 1000 FROM distlock.lease l
        WHERE l.name = p_name AND l.seq >= v_floor AND l.until > v_now ORDER BY l.until;
    RETURN QUERY SELECT w.token, NULL::bigint FROM distlock.waiter w
        WHERE w.name = p_name AND w.seq >= v_floor AND w.until > v_now ORDER BY w.ticket, w.token;
END $$;

-- Returns the next names of held locks that begin with `p_begin`, in order, after `p_after`.
CREATE OR REPLACE FUNCTION distlock.walk(p_begin text, p_after text, p_limit integer) RETURNS text[] LANGUAGE plpgsql AS $$
BEGIN
    RETURN ARRAY(SELECT DISTINCT l.name FROM distlock.lease l
        WHERE l.name > p_after AND l.name >= p_begin AND starts_with(l.name, p_begin) AND l.until > distlock.now()
        ORDER BY l.name LIMIT p_limit);
END $$;

-- Stores the record of a process for `p_kept` ms.
CREATE OR REPLACE FUNCTION distlock.introduce(p_prefix text, p_process text, p_record text, p_kept bigint)
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM set_config('synchronous_commit', 'off', true);
    INSERT INTO distlock.process AS p (prefix, process, record, until)
        VALUES (p_prefix, p_process, p_record, distlock.now() + p_kept * 1000)
        ON CONFLICT (prefix, process) DO UPDATE SET record = excluded.record, until = excluded.until;
END $$;

CREATE OR REPLACE FUNCTION distlock.take_leave(p_prefix text, p_process text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM set_config('synchronous_commit', 'off', true);
    DELETE FROM distlock.process WHERE prefix = p_prefix AND process = p_process;
END $$;

-- Returns the records of these processes, or of all if the argument is null.
CREATE OR REPLACE FUNCTION distlock.records(p_prefix text, p_processes text[])
RETURNS TABLE (process text, record text) LANGUAGE plpgsql AS $$
BEGIN
    RETURN QUERY SELECT p.process, p.record FROM distlock.process p
        WHERE p.prefix = p_prefix AND p.until > distlock.now()
            AND (p_processes IS NULL OR p.process = ANY (p_processes));
END $$;

-- Deletes rows of dead processes: those that ended a while ago and that no function has met since. It reads whole tables,
-- so only one process does it at a time, and none if the last sweep was less than `p_every` ms ago.
DROP FUNCTION IF EXISTS distlock.sweep();
CREATE OR REPLACE FUNCTION distlock.sweep(p_every bigint DEFAULT 0) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    v_now bigint := distlock.now();
BEGIN
    IF NOT pg_try_advisory_xact_lock(7233187398472430597) THEN
        RETURN;
    END IF;
    -- The time of the last sweep is stored as the record of no process, which expires at once.
    IF EXISTS (SELECT FROM distlock.process WHERE prefix = '' AND process = 'sweep'
        AND until > v_now - p_every * 1000 AND until <= v_now) THEN
        RETURN;
    END IF;
    PERFORM set_config('synchronous_commit', 'off', true);
    DELETE FROM distlock.lease WHERE until < v_now - 60000000;
    DELETE FROM distlock.waiter WHERE until < v_now - 60000000;
    -- A lock without a floor is looked up as one that never had a floor.
    DELETE FROM distlock.floor WHERE seq < v_now - 600000000;
    DELETE FROM distlock.process WHERE until < v_now;
    INSERT INTO distlock.process (prefix, process, record, until) VALUES ('', 'sweep', '', v_now)
        ON CONFLICT (prefix, process) DO UPDATE SET until = excluded.until;
END $$;

-- This comes last: if it exists, all of the above exists.
CREATE OR REPLACE FUNCTION distlock.version() RETURNS integer LANGUAGE sql IMMUTABLE AS 'SELECT 6';
