"""What a server offers: tools, prompts, resources, completion, subscriptions."""
