"""Tools to test against: virtual time, history checks, figures. No other room imports this one."""
