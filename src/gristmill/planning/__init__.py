"""Questions about a build, before and after: plan, explain, diff."""
