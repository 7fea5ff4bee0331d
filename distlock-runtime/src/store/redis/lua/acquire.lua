-- Enqueue, take a free lock, poll: idempotent, and harmless to every other token. (The lock is not this
-- token's: `confirm` asked, and found `v`.)
-- ARGV[2] ttl in ms, [3] ticket or '0', [4] expiry of the queue in ms, [5] server time in µs after
-- which this must not run any more, or '0'.
local token, ttl, ticket = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local t = redis.call('TIME')
local at = t[1] * 1000000 + t[2]
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

-- Never lower than the server's time, so that it also grows where the counter was lost.
local function fence()
  local n = redis.call('INCR', f)
  if n < at then
    n = at
    redis.call('SET', f, string.format('%.0f', n))
  end
  return n
end

if ticket == 0 then
  ticket = fence()
end
-- Free: lower tickets go first (I7).
while not v do
  local h = redis.call('ZRANGE', q, 0, 0, 'WITHSCORES')
  if not h[1] or tonumber(h[2]) >= ticket then
    redis.call('SET', L, token, 'PX', ttl)
    redis.call('ZREM', q, token)
    return {1, token, fence(), redis.call('EXISTS', q)}
  end
  redis.call('ZREM', q, h[1])
  if reserve(h[1]) then
    v = h[1]
  end
end
local new = redis.call('ZADD', q, 'NX', string.format('%.0f', ticket), token)
redis.call('PEXPIRE', q, ARGV[4])
local rank, last = redis.call('ZRANK', q, token), redis.call('ZCARD', q) - 1
if rank == 0 then
  -- Also if notified before: the holder may have come by the fast path, or missed the message.
  tell_behind(v)
elseif new == 1 and rank == last then
  tell_behind(redis.call('ZRANGE', q, rank - 1, rank - 1)[1])
end
-- The ticket in the queue: an earlier attempt may have drawn one that this one does not know.
if new == 0 then
  ticket = tonumber(redis.call('ZSCORE', q, token))
end
return {0, token, ticket, redis.call('PTTL', L), rank, last - rank, new}
