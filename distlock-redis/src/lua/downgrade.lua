
-- The token that has the lock alone gives it to one that does not keep readers out, with no holder
-- in between. The same again changes nothing. Readers at the front of the queue come along.
-- ARGV[1] the new token, [2] ttl in ms, [3] the token that had it, [4] server time in µs after which this
-- must not run any more, or '0'.
-- Answers as `acquire` does, but with 0 and the token alone if the lock was not the old one's.
read_clock()
if ARGV[4] ~= '0' and at > tonumber(ARGV[4]) then
  return {3, ARGV[1], at}
end
local _, _, _, limit = parts(ARGV[1])
if v == ARGV[3] then
  v, released = false, true
elseif not (n > 0 and redis.call('ZSCORE', L, ARGV[1])) then
  return {0, ARGV[1]}
else
  -- Changes nothing, but a full server refuses nothing behind it.
  redis.call('ZREM', q, ARGV[1])
end
hold(ARGV[1], limit, tonumber(ARGV[2]))
admit(nil, {})
return {1, ARGV[1], fence(), redis.call('EXISTS', q)}
