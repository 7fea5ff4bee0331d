
-- Free and hand on, leave the queue (R8), compensate (R9), repair: all that a token needs when it is
-- given up. Idempotent.
-- ARGV[2] ms to keep the lock for (`min_hold`); without it, it is freed now.
-- A lock that is kept expires by itself. Where others wait it is also released, 100 ms before it expires:
-- an expiry wakes no waiter.
-- Answers with what became of it (0 not this token's, 1 freed, 2 kept, 3 kept with others waiting)
-- and with the tokens that were let in.
local own = v == ARGV[1] or n > 0 and redis.call('ZSCORE', L, ARGV[1])
local answer = {own and 1 or 0}
local before
if not own then
  redis.call('ZREM', q, ARGV[1])
elseif ARGV[2] then
  local waits = redis.call('EXISTS', q)
  local ms = ARGV[2] + 100 * waits
  answer[1] = 2 + waits
  if v then
    redis.call('PEXPIRE', L, ms)
  else
    before = own
    read_clock()
    -- Changes nothing, but a full server refuses nothing behind it.
    redis.call('ZREM', q, ARGV[1])
    redis.call('ZADD', L, 'XX', now + ms, ARGV[1])
    end_with_last()
  end
elseif v then
  v, released = false, true
else
  before = own
  redis.call('ZREM', L, ARGV[1])
  n = n - 1
  end_with_last()
end
admit(nil, answer)
if released then
  redis.call('DEL', L)
end
if before and not answer[2] then
  -- The first of the queue may expect a later end than there is now: it looks again (R11). Not where one
  -- was let in before it: what ends first now is that one's reservation, which is seen to (R7).
  local m = redis.call('ZRANGE', q, 0, 0)[1]
  local p, _, _, limit = parts(m or '')
  local till = p and limit <= n and redis.call('ZRANGE', L, n - limit, n - limit, 'WITHSCORES')[2]
  if till and tonumber(till) < tonumber(before) then
    redis.pcall('PUBLISH', channels .. p, 'g ' .. m .. ' ' .. L)
  end
end
return answer
