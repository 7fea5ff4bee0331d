-- Raises the fence counter to the server's time, so that it grows over data loss and failover too.
-- KEYS[1] counter, ARGV[1] the lowest value it may have: one above the highest this process saw.
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
local counter = tonumber(redis.call('GET', KEYS[1]) or '0')
local floor = math.max(counter, now, tonumber(ARGV[1]))
if floor > counter then
  redis.call('SET', KEYS[1], string.format('%.0f', floor))
end
return floor
