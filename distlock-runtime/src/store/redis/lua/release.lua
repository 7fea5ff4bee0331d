-- Free and hand on, leave the queue, compensate, repair: whatever a token that is given up needs.
-- ARGV[2] ms to keep the lock for; without it, it is freed now.
-- What is kept expires by itself. Only where others wait it is released as well, or they would not hear
-- of it, a little before it expires.
-- `v` is the lock's present value, from before. Answers with what became of it (0 not this token's,
-- 1 freed, 2 kept, 3 kept with others waiting) and the next owner's token.
local function hand_on()
  while true do
    -- The first write, and not one that is refused when memory is short: the SET behind it then is
    -- not refused either.
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
