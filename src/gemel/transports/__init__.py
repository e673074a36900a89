"""What carries messages. A transport is given `serve` and knows neither session nor server."""
