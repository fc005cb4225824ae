-- The months since January of the year 0 until a day that is counted from 1970-01-01, as `BudgetPeriod::period_at` numbers
-- them (Howard Hinnant's civil calendar arithmetic). It stands before the scripts that need it.
local function month_of(day)
  local z = day + 719468
  local era = math.floor(z / 146097)
  local of_era = z % 146097
  local year = math.floor((of_era - math.floor(of_era / 1460) + math.floor(of_era / 36524) - math.floor(of_era / 146096)) / 365)
  local of_year = of_era - (365 * year + math.floor(year / 4) - math.floor(year / 100))
  return (era * 400 + year) * 12 + math.floor((5 * of_year + 2) / 153) + 2
end
