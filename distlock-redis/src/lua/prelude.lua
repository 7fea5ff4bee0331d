-- What the scripts that change a lock's holders share, behind their hot parts. KEYS: lock, queue,
-- fence; ARGV[1] token. A hot part leaves `v`, the token that has the lock alone, or false; and `n`,
-- how many hold it together, with those whose lease has ended while they were in no token's way.
-- And `first`, if it has taken the first one out of the queue of a lock that is free then.
-- (In a cluster: whether the slot stays where it is.)
local L, q, f = KEYS[1], KEYS[2], KEYS[3]
if type(v) == 'table' then
  -- A read that is refused for another reason says nothing about the lock: fail with that reason.
  if not string.find(v.err, 'WRONGTYPE', 1, true) then
    redis.call('GET', L)
  end
  -- No string. If it is no sorted set either, it is no lock, and this fails.
  v, n = false, redis.call('ZCARD', L)
end

-- The server's time in µs and in ms. It stands still while a script runs.
local at, now
local function read_clock()
  if not at then
    local t = redis.call('TIME')
    at = t[1] * 1000000 + t[2]
    now = math.floor(at / 1000)
  end
end

-- The prefix is what stands before `lock` in one name and before `queue` in the other. Not an
-- argument, which every uncontended release would have to carry.
local i = 0
repeat
  i = string.find(q, 'queue:', i + 1, true)
until string.sub(L, 1, i + 3) == string.sub(q, 1, i - 1) .. 'lock'
local channels = string.sub(L, 1, i - 1) .. 'wake:'

-- Owner, claim in ms, mode and limit of a token; nil for what is not a token of ours. Ours have
-- claims of 1 to 8 s (R12): a forged one could have a SET fail, or keep a free lock from all others
-- for that long.
local function parts(m)
  local p, claim, mode, limit = string.match(m, '^([%w_-]+)%.%w+%.(%d+)([sn])(%w*)$')
  claim = tonumber(claim or 0)
  if claim < 1 or claim > 10000 then
    return
  elseif limit == '' then
    return p, claim, mode, 1
  elseif limit == 'r' then
    return p, claim, mode, math.huge
  elseif limit ~= '1' and string.find(limit, '^[1-9]%d*$') then
    return p, claim, mode, tonumber(limit)
  end
end

-- A lock that is held together ends with the last of its leases, no earlier and no later: a bare SET
-- NX looks at nothing else.
local function end_with_last()
  local till = redis.call('ZRANGE', L, -1, -1, 'WITHSCORES')[2]
  if till then
    redis.call('PEXPIREAT', L, till)
  end
end

-- Whether one more may hold the lock whose limit is this.
local ours, purged = false, false
local function fits(limit)
  if v or n == 0 then
    return not v
  end
  -- A set that does not expire was not made by us: it is waited for, and left as it is.
  ours = ours or redis.call('PTTL', L) ~= -1
  -- Once: the clock stands still, and no token is let in with a lease that has ended.
  if ours and n >= limit and not purged then
    purged = true
    read_clock()
    redis.call('ZREMRANGEBYSCORE', L, '-inf', '(' .. now)
    -- Counted, because the set may have expired meanwhile, with all that were in it.
    n = redis.call('ZCARD', L)
  end
  return ours and n < limit
end

-- The key still has the token that had the lock alone and has it no more.
local released = false
local function hold(m, limit, ms)
  if limit == 1 then
    redis.call('SET', L, m, 'PX', ms)
    v = m
  else
    if released then
      redis.call('DEL', L)
    end
    read_clock()
    n = n + redis.call('ZADD', L, 'GT', now + ms, m)
    end_with_last()
    ours = true
  end
  released = false
end

-- Lets in the first of the queue, and the next one, as long as they fit: each for its claim, and this
-- token for `ttl`, if there is one. So the token that is first afterwards cannot have the lock yet (I4).
-- The tokens of others go into the list `let_in`. Answers whether this one was let in.
local function admit(ttl, let_in)
  local own = false
  while not v do
    -- The first write is one that is not refused under `maxmemory`: then what is written behind it is
    -- not refused either.
    local free = n == 0
    local m = first or (free and redis.call('ZPOPMIN', q) or redis.call('ZRANGE', q, 0, 0))[1]
    first = nil
    if not m then
      break
    end
    local p, claim, mode, limit = parts(m)
    local is_own = ttl and m == ARGV[1]
    -- A process is dead without a subscriber (R13). Not the count that PUBLISH returns, which includes
    -- pattern subscribers such as monitors. An error (an ACL) means unknown: do not skip.
    local lives = is_own
      or p and (mode == 'n' or redis.pcall('PUBSUB', 'NUMSUB', channels .. p)[2] ~= 0)
    -- A dead waiter goes in any case: those behind may fit where it does not.
    if lives and not free and not fits(limit) then
      break
    end
    if not free then
      redis.call('ZREM', q, m)
    end
    if is_own then
      hold(m, limit, ttl)
      own = true
    elseif lives then
      hold(m, limit, claim)
      redis.pcall('PUBLISH', channels .. p, 'g ' .. m .. ' ' .. L)
      let_in[#let_in + 1] = m
    end
  end
  return own
end
