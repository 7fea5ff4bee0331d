-- What the release of a token that has the lock alone comes to nearly always, before closures are made that
-- this does not need. Without waiters: compare and delete, and nothing else.
-- (`pcall`: a lock that is held together is no string.)
local v, n, first = redis.pcall('GET', KEYS[1]), 0, nil
if #ARGV == 1 and v == ARGV[1] then
  if redis.call('EXISTS', KEYS[2]) == 0 then
    redis.call('DEL', KEYS[1])
    return 1
  end
  -- (In a cluster: whether the slot stays where it is.)
  -- The first leaves the queue in any case: no holder is in its way. A token that is not alone as well, or
  -- dead, is left to what all share, which says why this is as it is.
  first = redis.call('ZPOPMIN', KEYS[2])[1]
  local p, claim, mode = string.match(first, '^([%w_-]+)%.%w+%.(%d+)([sn])$')
  claim = tonumber(claim or 0)
  if claim >= 1 and claim <= 10000 then
    local i = 0
    repeat
      i = string.find(KEYS[2], 'queue:', i + 1, true)
    until string.sub(KEYS[1], 1, i + 3) == string.sub(KEYS[2], 1, i - 1) .. 'lock'
    local channel = string.sub(KEYS[1], 1, i - 1) .. 'wake:' .. p
    if mode == 'n' or redis.pcall('PUBSUB', 'NUMSUB', channel)[2] ~= 0 then
      redis.call('SET', KEYS[1], first, 'PX', claim)
      redis.pcall('PUBLISH', channel, 'g ' .. first .. ' ' .. KEYS[1])
      return {1, first}
    end
  end
end
