-- Free and hand on, leave the queue (R8), compensate (R9), repair: all that a token needs when it is
-- given up. Idempotent.
-- ARGV[2] ms to keep the lock for (`min_hold`); without it, it is freed now.
-- A lock that is kept expires by itself. Where others wait it is also released, 100 ms before it expires:
-- an expiry wakes no waiter.
-- `v` is the lock's present value, from before. Answers with what became of it (0 not this token's,
-- 1 freed, 2 kept, 3 kept with others waiting) and the next owner's token.
local function hand_on()
  while true do
    -- The first write is one that is not refused under `maxmemory`: then the SET behind it is not
    -- refused either.
    local m = redis.call('ZPOPMIN', q)[1]
    if not m then
      redis.call('DEL', L)
      return ''
    end
    if reserve(m) then
      return m
    end
  end
end

if v == ARGV[1] then
  if ARGV[2] then
    local waits = redis.call('EXISTS', q)
    redis.call('PEXPIRE', L, ARGV[2] + 100 * waits)
    return {2 + waits, ''}
  end
  return {1, hand_on()}
end
redis.call('ZREM', q, ARGV[1])
if not v then
  -- Expired with others waiting.
  return {0, hand_on()}
end
return {0, ''}
