-- A token that has the vote of this node, but not those of a majority, steps back behind a waiter that
-- came earlier; where none did, nothing changes.
-- ARGV[1] token, [2] its ticket. Answers with 1 if it stepped back, else with 0.
local answer = {0}
if v == ARGV[1] or n > 0 and redis.call('ZSCORE', L, ARGV[1]) then
  local first = redis.call('ZRANGE', q, 0, 0, 'WITHSCORES')
  local mine = tonumber(ARGV[2])
  local earlier = first[2] and tonumber(first[2])
  if earlier and (earlier < mine or earlier == mine and first[1] < ARGV[1]) then
    answer[1] = 1
    redis.call('ZADD', q, 'NX', ARGV[2], ARGV[1])
    if v then
      v, released = false, true
    else
      redis.call('ZREM', L, ARGV[1])
      n = n - 1
      end_with_last()
    end
    admit(nil, answer)
    if released then
      redis.call('DEL', L)
    end
  end
end
return answer
