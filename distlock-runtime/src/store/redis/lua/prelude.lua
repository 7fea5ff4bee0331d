-- What `acquire` and `release` share. KEYS: lock, queue, fence; ARGV[1] token, ARGV[2] what wake-up
-- channels begin with.
local L, q, f = KEYS[1], KEYS[2], KEYS[3]

-- Owner, claim in ms and mode of a token; nil for what is not a token of ours.
local function parts(m)
  return string.match(m, '^([%w_-]+)%.%w+%.(%d+)([sn])$')
end

local function tell(kind, m)
  local p = parts(m)
  if p then
    redis.pcall('PUBLISH', ARGV[2] .. p, kind .. ' ' .. m .. ' ' .. L)
  end
end

-- Keeps the lock for a claim that has just left the queue; false if its owner cannot hear.
local function reserve(m)
  local p, claim, mode = parts(m)
  if not p then
    return false
  end
  if mode == 's' then
    -- Not PUBLISH's count, which takes monitoring patterns for listeners. An error (an ACL) means
    -- unknown: do not skip.
    local n = redis.pcall('PUBSUB', 'NUMSUB', ARGV[2] .. p)
    if n[2] == 0 then
      return false
    end
  end
  redis.call('SET', L, m, 'PX', claim)
  tell('g', m)
  return true
end
