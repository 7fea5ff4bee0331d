
-- Enqueue, take a free lock, poll: idempotent, and harmless to every other token. (This token does
-- not hold the lock: the hot part has asked, and knows its `limit`.)
-- ARGV[2] ttl in ms, [3] ticket or '0', [4] expiry of the queue in ms, [5] server time in µs after
-- which this must not run any more, or '0', [6] '1' for a try, which takes the lock or leaves nothing.
local token, ttl, ticket, try = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[6] == '1'
local reads = limit == math.huge
read_clock()
if ARGV[5] ~= '0' and at > tonumber(ARGV[5]) then
  return {3, token, at}
end

-- Notifies an owner or a waiter that another process waits behind it (R4).
local function tell_behind(m)
  local p = parts(m)
  if p then
    redis.pcall('PUBLISH', channels .. p, 's ' .. m .. ' ' .. L)
  end
end

-- Where a token has the lock alone, no waiter is let in.
if not v then
  if try then
    admit(nil, {})
  end
  if fits(limit) and redis.call('EXISTS', q) == 0 then
    hold(token, limit, ttl)
    return {1, token, fence(), 0}
  end
end
local rank, behind, new, let_in = 0, 0, 0, {}
if not try then
  if ticket == 0 then
    ticket = fence()
  end
  new = redis.call('ZADD', q, 'NX', string.format('%.0f', ticket), token)
  redis.call('PEXPIRE', q, ARGV[4])
  -- Free: lower tickets go first (I7).
  if not v and admit(ttl, let_in) then
    return {1, token, fence(), redis.call('EXISTS', q)}
  end

  local last = redis.call('ZCARD', q) - 1
  rank = redis.call('ZRANK', q, token)
  behind = last - rank
  if v and (rank == 0 or new == 0) then
    -- Tell the holder even if it was notified before, because it may have come by the fast path, or missed the
    -- message. When this token polls, tell it even if others wait before it: a server that is back with older
    -- data may hold the lock, and the places before this token, for processes that are done with them (R4).
    tell_behind(v)
  elseif rank == 0 or new == 0 then
    for _, m in ipairs(redis.call('ZRANGE', L, 0, rank == 0 and -1 or 15)) do
      tell_behind(m)
    end
  elseif new == 1 and rank == last then
    local m = redis.call('ZRANGE', q, rank - 1, rank - 1)[1]
    if string.sub(m, -1) ~= 'r' then
      tell_behind(m)
    elseif not reads then
      -- Readers in a row are let in together. Without this one, others could go on joining the first of
      -- them; a reader behind them only joins that row.
      local i = rank - 1
      repeat
        tell_behind(m)
        i = i - 1
        m = i >= 0 and redis.call('ZRANGE', q, i, i)[1]
      until not m or string.sub(m, -1) ~= 'r'
    end
  end
  if reads and behind > 0 then
    -- More readers may join one that only readers stand behind.
    behind = 0
    for _, m in ipairs(redis.call('ZRANGE', q, rank + 1, -1)) do
      if string.sub(m, -1) ~= 'r' then
        behind = 1
        break
      end
    end
  end
  -- The ticket in the queue: an earlier attempt may have drawn one that this one does not know.
  if new == 0 then
    ticket = tonumber(redis.call('ZSCORE', q, token))
  end
end
-- In how many ms there is room, if no holder leaves or is renewed.
local remaining
if n > 0 and n >= limit and limit > 1 then
  local till = redis.call('ZRANGE', L, n - limit, n - limit, 'WITHSCORES')[2]
  remaining = till and math.max(till - now, 0) or 0
else
  remaining = redis.call('PTTL', L)
end
-- A token that lets others in also checks that they arrive: it polls when their reservation is over, as if it were the
-- first.
return {0, token, ticket, remaining, let_in[1] and 0 or rank, behind, new}
