# Tell a chat what a rollout does; 'safeupdate_chat' in the configuration of the master is the
# address of its web hook. It is in events and in the job cache, too. Any minion can forge an event: tell people, let nothing act on it.
chat:
  runner.http.query:
    - args:
      - url: {{ opts['safeupdate_chat'] | json }}
      - method: POST
      - header_dict: {Content-Type: application/json}
      - data: {{ {'text': 'Rollout ' ~ data.get('rollout') ~ ': ' ~ tag.split('/')[-1] ~ ' '
                  ~ data.get('why', '')} | json | json }}
