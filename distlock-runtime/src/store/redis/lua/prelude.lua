-- What `acquire` and `release` share. KEYS: lock, queue, fence; ARGV[1] token.
local L, q, f = KEYS[1], KEYS[2], KEYS[3]

-- The prefix is what stands before `lock` in one name and before `queue` in the other. Not an
-- argument, which every uncontended release would have to carry.
local n = 0
repeat
  n = string.find(q, 'queue:', n + 1, true)
until string.sub(L, 1, n + 3) == string.sub(q, 1, n - 1) .. 'lock'
local channels = string.sub(L, 1, n - 1) .. 'wake:'

-- Owner, claim in ms and mode of a token; nil for what is not a token of ours.
local function parts(m)
  return string.match(m, '^([%w_-]+)%.%w+%.(%d+)([sn])$')
end

-- Reserves the lock for a token that has just left the queue; false if its process is dead (it must
-- have a subscriber, R13) or the token is not one of ours.
local function reserve(m)
  local p, claim, mode = parts(m)
  claim = tonumber(claim or 0)
  -- Ours are of 1 to 8 s (R12). A forged one could have the SET below fail, or keep a free lock from
  -- all others for that long.
  if claim < 1 or claim > 10000 then
    return false
  end
  if mode == 's' then
    -- Not the count that PUBLISH returns, which includes pattern subscribers such as monitors. An
    -- error (an ACL) means unknown: do not skip.
    local n = redis.pcall('PUBSUB', 'NUMSUB', channels .. p)
    if n[2] == 0 then
      return false
    end
  end
  redis.call('SET', L, m, 'PX', claim)
  redis.pcall('PUBLISH', channels .. p, 'g ' .. m .. ' ' .. L)
  return true
end
